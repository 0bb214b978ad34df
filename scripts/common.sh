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

# version_of_workspace: the version in Cargo.toml.
version_of_workspace() { sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml; }

# absolute_links: Markdown of the root whose links to files lead to the repository, at the tag of the version, for pages outside of it.
# Where REPOSITORY_URL is not set they stay.
absolute_links() {
    local at="${REPOSITORY_URL:-}" tag
    [ -n "$at" ] || { cat; return; }
    tag="v$(version_of_workspace)"
    sed -E "s|\]\((images/[^)]*)\)|](${at}/raw/$tag/\1)|g; s|\]\(([^):#][^):]*)\)|](${at}/blob/$tag/\1)|g"
}

# duration SECONDS: a duration as people read it.
duration() { printf '%d:%02d min' "$(($1 / 60))" "$(($1 % 60))"; }

# build_release: builds the program that scripts/serve runs, and says how far it is: in place on a terminal, as a line a minute
# elsewhere.
build_release() {
    local total
    total="$(cargo tree --locked --edges normal,build --prefix none | sed 's/ (.*//' | sort -u | wc -l)"
    cargo build --release --locked --bin sekisho --quiet --message-format json-render-diagnostics | build_progress "$total"
}

# build_progress TOTAL: reads what cargo says of each artifact, and prints how many of the packages are compiled.
build_progress() {
    local total="$1" begun=$SECONDS said=$SECONDS line="" part="" package text interval=60
    local -A packages
    [ -t 2 ] && interval=1
    while true; do
        # A time-out keeps the part of a line that was read.
        if IFS= read -r -t 1 part; then
            line="$line$part"
            package="$(sed -n 's/.*"reason":"compiler-artifact".*"package_id":"\([^"]*\)".*/\1/p' <<<"$line")"
            [ -z "$package" ] || packages[$package]=1
            line=""
        elif [ $? -gt 128 ]; then
            line="$line$part"
        else
            break
        fi
        [ $((SECONDS - said)) -ge "$interval" ] || continue
        said=$SECONDS
        text="compiled: ${#packages[@]} of $total packages, $(duration $((SECONDS - begun)))"
        [ "${#packages[@]}" -lt "$((total - 1))" ] || text="$text; the last, sekisho itself, takes the longest"
        if [ -t 2 ]; then printf '\r\033[K%s' "$text" >&2; else say "$text"; fi
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
    [ $((SECONDS - begun)) -lt 5 ] || say "compiled in $(duration $((SECONDS - begun)))"
}

# built_tests: builds the integration tests and the programs that they start, unless a suite of scripts/test runs this: then
# PROGRAM says which program, and it is built.
built_tests() {
    [ -n "${PROGRAM:-}" ] || cargo build --quiet --locked --features test-programs --test integration --example conformance_server
}

# built_program: the path of the program of the tests: what PROGRAM says, or one that is built now.
built_program() {
    built_tests || return 1
    printf '%s\n' "${PROGRAM:-$target/debug/sekisho}"
}

# integration ARGUMENT...: runs integration tests.
integration() { cargo test --locked --quiet --features test-programs --test integration -- "$@"; }

use_installed_toolchain
