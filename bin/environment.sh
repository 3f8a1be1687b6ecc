# Sourced by bin/test and bin/quickstart, in the root of the repository.

# Prints the first Python of PATH that can make the environments.
find_python() {
  local name
  for name in python3 python3.13 python3.12 python3.11 python3.10; do
    # ensurepip: Debian's python3 lacks it until python3-venv is installed.
    if "$name" -c '
import ensurepip, sys, venv
sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  echo "$0: no Python 3.10 to 3.13 with venv on PATH: install one (Debian: apt install python3-venv)." >&2
  return 1
}

# make_environment FOLDER FILE...: a virtual environment with the requirements of FILEs and this
# package. Does nothing if FOLDER has them already; completes an environment that was interrupted.
make_environment() {
  (
    # Two programs may want the same environment at once. macOS has no flock.
    if command -v flock >/dev/null; then flock 9; fi
    _complete_environment "$@"
  ) 9<pyproject.toml
}

_complete_environment() {
  local folder=$1 python file wanted missing=() options=()
  shift
  wanted="$PWD $(cat pyproject.toml requirements*.txt | cksum)"
  if ! "$folder/bin/python" -c '' 2>/dev/null; then
    python=$(find_python)
    "$python" -m venv --clear "$folder"
  fi
  for file in "$@"; do
    if [[ $(cat "$folder/$file.installed" 2>/dev/null) != "$wanted" ]]; then
      missing+=("$file")
      options+=(-r "$file")
    fi
  done
  if ((${#missing[@]})); then
    echo "Installing ${missing[*]} into $folder (minutes, the first time)"
    "$folder/bin/python" -m pip install -q --disable-pip-version-check "${options[@]}" -e .
    for file in "${missing[@]}"; do
      echo "$wanted" >"$folder/$file.installed"
    done
  fi
}
