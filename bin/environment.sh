# Sourced by bin/test and bin/quickstart, in the root of the repository.

# A status above 128 means a signal, if one has that number.
set -o errtrace
trap 'ended=$?
if ((ended > 128)) && name=$(kill -l "$ended" 2>/dev/null); then
  echo "$0: a command was killed by SIG$name. Run $0 again; after SIGKILL, with more memory." >&2
fi' ERR

# make_environment FOLDER FILE...: creates a virtual environment with the requirements in FILEs and
# this package, with the first suitable Python in PATH. Does nothing if FOLDER is up to date.
make_environment() {
  local folder=$1 file name missing=
  shift
  for file in "$@" albert_tf/environments/common.txt pyproject.toml; do
    cmp -s "$file" "$folder/installed/${file##*/}" || missing=yes
  done
  [[ $missing ]] || return 0
  if ! "$folder/bin/python" -c "" 2>/dev/null; then
    for name in python3 python3.13 python3.12 python3.11 python3.10 ""; do
      # ensurepip: Debian's python3 lacks it until python3-venv is installed.
      "$name" -c 'import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
        2>/dev/null && break
    done
    if [[ ! $name ]]; then
      echo "$0: no Python 3.10 to 3.13 with venv on PATH: install one (Debian: apt install python3-venv)." >&2
      return 1
    fi
    "$name" -m venv --clear "$folder"
  fi
  echo "Installing ${*##*/} into $folder (minutes, the first time)" >&2
  # Python compiles what it imports, a small part of it, by itself.
  "$folder/bin/python" -m pip install -q --no-compile --disable-pip-version-check "${@/#/-r}" -e .
  mkdir -p "$folder/installed"
  cp "$@" albert_tf/environments/common.txt pyproject.toml "$folder/installed"
}
