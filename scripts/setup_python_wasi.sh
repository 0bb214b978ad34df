#!/usr/bin/env bash
# Sets up the interpreter of python_executor: fetched by pip, checked by its hashes, compiled into the user's cache.
# Some minutes the first time, milliseconds afterwards. With PROGRAM (a built sekisho) nothing is built.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

program="${1:-}"
if [ -z "$program" ]; then
    need cargo "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
    build_release
    program="$target/release/sekisho"
fi
need python3 "sudo apt-get install python3 python3-pip"
exec "$program" sandbox prepare
