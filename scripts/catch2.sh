# shellcheck shell=bash
# Installs Catch2 3, which the tests need, from the distribution; from the backports of Debian 12 if the distribution
# has only an older version. Sourced by scripts/setup, which sets `apt` (the command for apt-get) and `as_root`. If
# nothing here succeeds, CMake downloads Catch2, so no failure here ends the set-up.

catch2_is_installed() {
  dpkg-query -W -f '${db:Status-Status} ${Version}\n' libcatch2-dev catch2 2>/dev/null | grep -q '^installed 3\.'
}

install_catch2() {
  local reason
  command -v dpkg-query >/dev/null || return 0
  if catch2_is_installed; then return 0; fi
  step "Installing Catch2"
  if ! command -v apt-get >/dev/null || ! command -v "${as_root[0]-true}" >/dev/null; then
    reason="apt-get or sudo is missing"
  elif apt-cache policy catch2 | grep -q '^ *Candidate: 3\.'; then
    (with_progress "$cache/log/apt-catch2.log" "${apt[@]}" install -y --no-install-recommends catch2) && return 0
    reason="see $cache/log/apt-catch2.log"
  elif (install_catch2_from_backports); then
    return 0
  else
    reason="neither the distribution nor its backports gave it"
  fi
  note "Catch2 3 was not installed ($reason): CMake fetches its sources and builds them"
}

# Uses a separate source list and separate folders, and only the keys of the machine, so that the sources and package
# lists of the machine stay unchanged.
install_catch2_from_backports() {
  local codename mirror own=$cache/backports log=$cache/log/apt-backports.log keys=/usr/share/keyrings/debian-archive-keyring.gpg
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  [ "$codename" = bookworm ] && [ -e "$keys" ] || return 1
  # shellcheck disable=SC2016 # apt expands it
  mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $codename" 'Label: Debian' 2>/dev/null | head -n 1)
  [ -n "$mirror" ] || return 1
  mkdir -p "$own/lists/partial" "$own/cache/archives/partial"
  printf 'deb [signed-by=%s] %s %s-backports main\n' "$keys" "$mirror" "$codename" >"$own/sources.list"
  local backports=(-o "Dir::Etc::sourcelist=$own/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$own/lists" -o "Dir::Cache=$own/cache" -o APT::Sandbox::User=root)
  with_progress "$log" "${apt[@]}" "${backports[@]}" update
  rm -f "$own"/*.deb
  (cd "$own" && with_progress "$log" apt-get "${backports[@]}" download libcatch2-dev) || return 1
  with_progress "$log" "${apt[@]}" install -y --no-install-recommends "$own"/libcatch2-dev_*.deb
  note "Catch2 from $codename-backports; the machine's package sources are as they were"
}
