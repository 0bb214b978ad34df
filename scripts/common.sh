# shellcheck shell=bash
# Functions of the scripts; sourced in the project's root, not run. Tools and packages are kept in the user's cache, so
# that all checkouts share them; cargo uses its usual target directory.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/sekisho"
tools="$cache/tools"
# shellcheck disable=SC2034 # the scripts that source this file use it
target="${CARGO_TARGET_DIR:-$PWD/target}"
export PATH="$tools/bin:$PATH"
mkdir -p "$tools/bin"

say() { printf '%s\n' "$*" >&2; }

# need COMMAND INSTALL-LINE: stops with the line that installs what is missing.
need() {
    command -v "$1" >/dev/null 2>&1 && return 0
    say "missing: $1. Install it with: $2"
    return 1
}

# debian_package COMMAND PACKAGE: installs a Debian package where that needs no question (as root).
debian_package() {
    command -v "$1" >/dev/null 2>&1 && return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing $2 ..."
        { apt-get install -y -qq "$2" || { apt-get update -qq && apt-get install -y -qq "$2"; }; } >"$cache/apt.log" 2>&1 || true
    fi
    need "$1" "sudo apt-get install $2"
}

# use_installed_toolchain: rustup downloads the version that rust-toolchain.toml names unless a toolchain has that very
# name. Where another one, such as `stable`, is of that version, it is used instead.
use_installed_toolchain() {
    local wanted name
    wanted="$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)"
    [ -z "${RUSTUP_TOOLCHAIN:-}" ] && command -v rustup >/dev/null 2>&1 || return 0
    rustup toolchain list | grep -q "^$wanted-" && return 0
    for name in $(rustup toolchain list | awk '{print $1}'); do
        if [ "$(rustup run "$name" rustc --version 2>/dev/null | awk '{print $2}')" = "$wanted" ]; then
            export RUSTUP_TOOLCHAIN="$name"
            return 0
        fi
    done
}

# cargo_tool COMMAND CRATE VERSION: builds a cargo tool once, into the cache, and without optimization: it runs for seconds, and an
# optimized build takes minutes.
cargo_tool() {
    command -v "$1" >/dev/null 2>&1 && return 0
    say "installing $2 $3 (once, into the cache) ..."
    # In a target directory of its own, so that it does not wait for (or rebuild) the project's.
    env -u CARGO_TARGET_DIR cargo install --quiet --debug --locked --root "$tools" "$2" --version "$3" >"$cache/$2.log" 2>&1 || true
    need "$1" "cargo install --locked $2 --version $3"
}

# python_environment PACKAGE...: the virtual environment of the tests in the cache, with these packages.
python_environment() { python_environment_at "$cache/python" "$@"; }

# python_environment_at FOLDER PACKAGE...: a virtual environment there with these packages.
python_environment_at() {
    local folder="$1"
    shift
    # An environment without pip was not completed.
    if [ ! -x "$folder/bin/pip" ]; then
        rm -rf "$folder"
        python3 -m venv "$folder" >"$cache/pip.log" 2>&1 || return 1
    fi
    local wanted="$folder/wanted" list="$*"
    if [ "$(cat "$wanted" 2>/dev/null)" != "$list" ]; then
        say "installing Python packages: $list ..."
        "$folder/bin/pip" install --quiet --disable-pip-version-check "$@" >"$cache/pip.log" 2>&1 || return 1
        printf '%s' "$list" >"$wanted"
    fi
}

# node_packages FOLDER PACKAGE...: packages of npm in a folder of the cache.
node_packages() {
    local folder="$1"
    shift
    need npm "sudo apt-get install npm" || return 1
    mkdir -p "$folder"
    if [ "$(cat "$folder/wanted" 2>/dev/null)" != "$*" ]; then
        say "installing npm packages: $* ..."
        npm install --silent --no-audit --no-fund --prefix "$folder" "$@" >"$cache/npm.log" 2>&1 || return 1
        printf '%s' "$*" >"$folder/wanted"
    fi
}

# built_program: the path of the program: what PROGRAM says, or one that is built now.
built_program() {
    [ -n "${PROGRAM:-}" ] || cargo build --quiet --locked --bin sekisho || return 1
    printf '%s\n' "${PROGRAM:-$target/debug/sekisho}"
}

# lasting_names: names of functions as in scripts/release/functions.ld: with `*` in place of the hash that each build
# changes.
lasting_names() { sed -E "s/17h[0-9a-f]{16}E/17h*E/g; s/Cs[0-9A-Za-z]{6,}_/Cs*_/g; s/\.llvm\.[0-9]+/*/g"; }

# functions_of PROGRAM [SECTION]: the number of functions of each of these names, in one section or in all.
functions_of() {
    objdump --syms "$1" | awk -v section="${2:-.text}" 'index($0, " F " section) {print $NF}' | lasting_names | sort | uniq -c
}

# laid_functions: the names in scripts/release/functions.ld.
laid_functions() { sed -n 's/^ *\*(\.text\.\(.*\))$/\1/p' scripts/release/functions.ld; }

use_installed_toolchain
