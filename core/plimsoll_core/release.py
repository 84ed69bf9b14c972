"""Which release this software is; the wheel, the chart and the images carry the same number."""

RELEASE = "0.2"
