"""The controller's decisions: from an image and a request to records.

`decide.decide` is the way in; every module decides one matter.  Nothing here changes an image.
"""
