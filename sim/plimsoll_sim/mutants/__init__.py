"""The tests of the tests: each guard of the protocol is taken out, and a seed must notice.

`guards` holds the protocol's own list, `unlisted_guards` ours; `mutant` says what a mutant is and
makes Python import the mutated text, `hunt` looks for the seeds that catch it.
"""
