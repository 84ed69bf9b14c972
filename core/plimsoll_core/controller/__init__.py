"""What the cluster's one decision maker decides: from an image and a request to records.

`decide.decide` is the way in; every module decides one matter.  Nothing here changes an image.
"""
