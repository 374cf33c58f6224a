#!/usr/bin/env bash
# Make a history with the code as it is now: make.sh FOLDER. `before` was made once, in /srv, and stays as it is.
set -euo pipefail
folder=$(realpath -m "$1")
cd "$(dirname "$0")"
export RAY_SNAPSHOT_KEY="the key of the history of before"
for part in traced saved watched; do
    python program_of_before.py "$folder" $part
done
