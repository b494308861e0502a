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
    try_environment "$1" "$2" || tell_failure "$1/.venv" "$?"
}

try_environment() { # ROOT EXTRAS: as make_environment; fails with 3 where the index could not be asked, else with 1
    root=$1 extras=$2
    venv=$root/.venv
    wanted="$(checksum "$root/pyproject.toml" "$root/constraints.txt") $extras"
    mark=$venv/canaryjax-installed-$(printf '%s' "${extras:-core}" | tr -c 'a-z' '-')
    if [ "$(cat "$mark" 2>/dev/null)" = "$wanted" ] && "$venv/bin/python" -c "" >/dev/null 2>&1; then
        return 0
    fi
    whole_venv "$venv" 11 || {
        python=$(find_python 11) || {
            echo "canaryjax: error: expected a Python of at least 3.11 with venv, found none; install one (on Debian" \
                "and Ubuntu also the package python3-venv)" >&2
            exit 2
        }
        make_venv "$venv" "$python"
    }
    echo "canaryjax: installing${extras:+ with $extras} (once; some minutes, 1.2 GB on disk${extras:+ and more})" >&2
    target=$root${extras:+[$extras]}
    quiet_pip "$venv" -c "$root/constraints.txt" -e "$target" || {
        # Other versions are no help where none could be fetched.
        ! unreachable "$venv" || return 3
        echo "canaryjax: the pinned versions do not install on $("$venv/bin/python" --version); taking the newest" >&2
        quiet_pip "$venv" -e "$target" || {
            ! unreachable "$venv" || return 3
            return 1
        }
    }
    printf '%s\n' "$wanted" >"$mark"
}

whole_venv() { # VENV MINOR: does its Python run, is it new enough, and has it all of pip?
    [ ! -e "$1/canaryjax-half-made" ] &&
        "$1/bin/python" -c "import sys; raise SystemExit(sys.version_info < (3, $2))" >/dev/null 2>&1 &&
        "$1/bin/python" -m pip --version >/dev/null 2>&1
}

make_venv() { # VENV PYTHON: makes it, whatever an earlier call that was stopped has left
    name=$(basename "$1")
    if [ -e "$1" ]; then
        echo "canaryjax: $name is not whole; making it again with $2" >&2
    else
        echo "canaryjax: making $name with $2" >&2
    fi
    # pip in a second step: stopped in the middle of it, an environment looks whole and is not.
    if ! { "$2" -m venv --clear --without-pip "$1" && : >"$1/canaryjax-half-made" &&
        "$1/bin/python" -m ensurepip --upgrade --default-pip >/dev/null; }; then
        echo "canaryjax: error: expected to make $1 with $2, found the error above; make room or give access, or" \
            "put another Python first on the path, and run this again" >&2
        exit 2
    fi
    rm "$1/canaryjax-half-made"
}

unreachable() { # VENV: did the last pip fail because nothing could be fetched?
    signs='from versions: none|Max retries|Could not fetch URL|timed out|Connection[A-Za-z]*Error|HTTP ?[Ee]rror'
    grep -Eq "$signs" "$1/pip.log"
}

tell_failure() { # VENV STATUS: one line on why the last pip failed, and the end
    log=$1/pip.log
    # The cause stands before the line that only says that a step of pip's failed.
    found=$(grep -E '^ *(ERROR|error):' "$log" | grep -v subprocess-exited | tail -n 1 | sed 's/^ *[A-Za-z]*: *//')
    case $2 in
    3) advice="it may be the network or the package index: check both ($1/bin/python -m pip config list names the index;
        a Python too new for these packages looks the same)" ;;
    *) advice="put what it names right, or another Python of at least 3.11 first on the path" ;;
    esac
    echo canaryjax: error: expected pip to install the packages of pyproject.toml into "$1", found: \
        "${found:-no word why};" $advice, and run this again. All that pip said: "$log" >&2
    exit 1
}

quiet_pip() { # VENV WORDS...: pip install, its output in VENV/pip.log; a line now and then says what it is doing
    pip_log=$1/pip.log
    pip_python=$1/bin/python
    shift
    : >"$pip_log"
    tell_progress "$pip_log" &
    teller=$!
    pip_status=0
    # Without an index, pip's five retries of each package are minutes of silence.
    PIP_RETRIES=${PIP_RETRIES:-2} "$pip_python" -m pip install --disable-pip-version-check --no-input \
        --progress-bar off "$@" >"$pip_log" 2>&1 || pip_status=$?
    { kill "$teller" && wait "$teller"; } 2>/dev/null || :
    return "$pip_status"
}

tell_progress() { # LOG: every 15 seconds the last thing that pip began, until the script is gone
    waited=0
    while sleep 1 && kill -0 $$ 2>/dev/null; do
        waited=$((waited + 1))
        [ $((waited % 15)) = 0 ] || continue
        # Names only: links and folders say nothing to whoever waits.
        doing=$(sed -nE 's/^ *((Collecting|Downloading|Preparing|Building|Installing) [^ ]*).*/\1/p' "$1" | tail -n 1)
        echo "canaryjax: installing, $waited s: ${doing:-starting}" >&2
    done
}
