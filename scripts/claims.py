"""What is claimed about Transformers and what they replaced, measured: the claim, the figures, and whether it holds.

    python scripts/claims.py [NAME ...] [--list] [--markdown] [--work runs/claims] [--seeds 1 2 3] [--steps 500]

Without names all claims are measured. Those marked `trains` by --list train small models on the built-in corpus, which
stay in --work: the same command goes on where it was stopped, and does not train again. --markdown prints the middle of
docs/claims.md. Times are the shortest of several rounds in which all sides take turns, and are given as ratios.
"""

import sys
import textwrap
from pathlib import Path

from measured_claims.claim import Claim, Finding, Settings
from measured_claims.table import CLAIMS
from measuring import command
from measuring.comparing import as_table

from transformer_mt.errors import UserError


def told(claim: Claim, finding: Finding) -> str:
    """A claim for a terminal."""
    rows = [list(finding.heads), *map(list, finding.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join((f"{claim.name}: {claim.says} ({claim.source})", f"  holds if {claim.threshold}",
                      *(f"    {line}" for line in lines), f"  {finding.verdict}\n"))  # fmt: skip


def section(claim: Claim, finding: Finding) -> str:
    """A claim in docs/claims.md."""
    said = f"{claim.says} ({claim.source}.) It holds if {claim.threshold}: **{finding.verdict}**."
    lines = "\n".join(textwrap.wrap(said, 120, break_long_words=False, break_on_hyphens=False))
    return f"### `{claim.name}`\n\n{lines}\n\n{as_table(finding.heads, finding.rows)}"


def summary(findings: dict[str, Finding]) -> str:
    """The table at the head of docs/claims.md."""
    rows = [(f"[`{name}`](#{name})", CLAIMS[name].says, str(found.verdict)) for name, found in findings.items()]
    return as_table(("name", "claim", "verdict"), rows)


def main() -> None:
    """Parse, measure, print."""
    parser = command.Parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of claims; all of them by default")
    parser.add_argument("--list", action="store_true", help="name all claims and measure nothing")
    parser.add_argument("--markdown", action="store_true", help="for docs/claims.md")
    parser.add_argument("--work", type=Path, default=Path("runs/claims"), help="where trainings are kept")
    parser.add_argument("--seeds", nargs="+", type=command.count(0), default=[1, 2, 3])
    parser.add_argument(
        "--steps", type=command.count(), default=500, help="of a training; half as many again for long lines"
    )
    parser.add_argument("--small", action="store_true", help="the least sizes, to see that it runs")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in CLAIMS]:
        raise UserError(f"There is no claim {unknown[0]!r}. See {parser.prog} --list for those that there are.")
    if args.list:
        for claim in CLAIMS.values():
            print(f"{claim.name:<16} {'trains' if claim.trains else '':<8}{claim.says}")
        return
    settings = Settings(args.work.resolve(), tuple(args.seeds), args.steps, args.small)
    findings = {}
    for name in args.names or CLAIMS:
        findings[name] = CLAIMS[name].measure(settings)
        print(told(CLAIMS[name], findings[name]), file=sys.stderr if args.markdown else sys.stdout, flush=True)
    if args.markdown:
        print(
            summary(findings),
            "## The claims\n",
            *(section(CLAIMS[name], found) for name, found in findings.items()),
            sep="\n",
            end="",
        )


if __name__ == "__main__":
    command.run(main)
