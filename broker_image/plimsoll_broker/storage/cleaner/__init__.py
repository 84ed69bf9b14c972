"""Cleans a compacted log on disk: finds the newest keys, writes cleaned segments, and repairs what
a crash interrupted."""
