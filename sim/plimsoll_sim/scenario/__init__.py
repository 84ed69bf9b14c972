"""Named scenarios: text files of commands, each with the output that it must have.

`script` reads the files, `stage` is a simulated cluster without randomness, the commands in
`…_verbs` act on it, `rendering` prints its state, `runner` plays a file and compares the output.
"""
