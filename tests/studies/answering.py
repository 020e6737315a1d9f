"""A child that does what it is told: answer, wait, grow, complain or end."""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        time.sleep(asked.get("wait", 0))
        room = bytearray(asked.get("bytes", 0))
        room[:] = b"x" * len(room)
        time.sleep(asked.get("then", 0))
        if "complain" in asked:
            sys.exit(asked["complain"])
        print(json.dumps({"heard": asked}), flush=True)


if __name__ == "__main__":
    main()
