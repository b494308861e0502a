# Sourced by the scripts beside it: finds a Python, makes .venv, installs the package with the pinned versions.

good_python() { # COMMAND MINOR: is it a Python 3 of at least that minor version that can make environments?
    "$1" -c "import sys, venv, ensurepip; raise SystemExit(sys.version_info < (3, $2))" >/dev/null 2>&1
}

find_python() { # MINOR: prints the first Python found of at least 3.MINOR, or nothing
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 \
        "${PYENV_ROOT:-${HOME:-/nonexistent}/.pyenv}"/versions/3.1[1-9]*/bin/python3; do
        if command -v "$candidate" >/dev/null 2>&1 && good_python "$candidate" "$1"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

checksum() { # FILE...: one word that changes when a file does
    cat "$@" | cksum | tr ' ' '-'
}

make_environment() { # ROOT EXTRAS: afterwards ROOT/.venv holds the package, editable, with those extras
    root=$1 extras=$2
    venv=$root/.venv
    if [ ! -x "$venv/bin/python" ]; then
        python=$(find_python 11) || {
            echo "canaryjax: error: expected a Python of at least 3.11 with venv, found none; install one (on Debian" \
                "and Ubuntu also the package python3-venv)" >&2
            exit 2
        }
        echo "canaryjax: making .venv with $python" >&2
        "$python" -m venv "$venv"
    fi
    wanted="$(checksum "$root/pyproject.toml" "$root/constraints.txt") $extras"
    mark=$venv/canaryjax-installed-$(printf '%s' "${extras:-core}" | tr -c 'a-z' '-')
    if [ "$(cat "$mark" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    echo "canaryjax: installing${extras:+ with $extras} (once)" >&2
    target=$root${extras:+[$extras]}
    if ! quiet_pip "$venv" -c "$root/constraints.txt" -e "$target"; then
        echo "canaryjax: the pinned versions do not install on this Python; taking the newest" >&2
        quiet_pip "$venv" -e "$target" || return 1
    fi
    printf '%s\n' "$wanted" >"$mark"
}

quiet_pip() { # VENV WORDS...: pip install, its output shown only when it fails
    pip_log=$1/pip.log
    pip_python=$1/bin/python
    shift
    if ! "$pip_python" -m pip install --disable-pip-version-check --quiet "$@" >"$pip_log" 2>&1; then
        tail -n 20 "$pip_log" >&2
        return 1
    fi
}
