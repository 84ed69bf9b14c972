"""The release of this software; the wheel, the chart and the images carry the same number."""

RELEASE = "0.3"
