"""Named scenarios: stories that a text file tells command by command, with what came of each.

`script` reads the files, `stage` is a simulated cluster without chance, the verbs act on it, `show`
says how it looks, `runner` plays a file and says whether everything came as written.
"""
