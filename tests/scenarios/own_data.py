"""What tests do to a user's own scenario."""

import csv


def certify(run, mine, *more):
    return run("certify", str(mine / "scenario.toml"), "--plan", str(mine / "plan.csv"), "--jobs", "1", *more)


def rewrite(file, change):
    """Change the rows of a CSV file, given as lists of cells with the header first."""
    with file.open(newline="") as stream:
        rows = list(csv.reader(stream))
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows(change(rows))
