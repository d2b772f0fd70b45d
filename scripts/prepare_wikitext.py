"""WikiText to tokens: python scripts/prepare_wikitext.py source=<dir|hub> tokenizer=<dir|hub>"""

import sys

from coefdyn.cli import main

if __name__ == "__main__":
    sys.exit(main(["prepare", *sys.argv[1:]]))
