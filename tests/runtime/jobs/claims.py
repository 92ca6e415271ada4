"""The claims of a job: its functions, run one after another."""

import sys


def run(job, helpers, after):
    """
    Run the functions of a script that are no helpers, or those that its arguments name; print RESULT at the end.

    Args:
        job: the names of the script, `globals()`.
        helpers: names of functions that are no claims, with blanks between.
        after: called after each claim.
    """
    for name, claim in list(job.items()):
        if isinstance(claim, type(run)) and claim.__module__ == "__main__" and name not in helpers.split():
            if name in (sys.argv[1:] or [name]):
                try:
                    claim()
                    after()
                except BaseException:
                    print("FAILED", name, flush=True)
                    raise
    print("RESULT true", flush=True)
