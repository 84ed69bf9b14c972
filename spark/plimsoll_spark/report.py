def render(settings, outcome, findings):
    return "x"
