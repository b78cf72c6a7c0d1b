#!/bin/sh
# Gives an etcd its users, through its JSON gateway, and has it ask for passwords:
# root, whom etcd wants before it asks anybody, and stockd, who may read and write
# what begins with stockd/ and nothing else. health may do nothing at all, so that
# its password can be known to everybody: to refuse it, etcd must be healthy. What is
# done already is left alone.
#
#   etcd-users.sh http://etcd:2379
set -eu
etcd=$1
root=$(cat /run/secrets/etcd-root/password)
stockd=$(cat /run/secrets/etcd/password)

# The passwords come by standard input: no list of processes has them.
ask() { # ask PATH JSON
  printf '%s' "$2" | curl -fsS --max-time 5 --data-binary @- "$etcd/v3/auth/$1" >/dev/null
}

if ask authenticate "{\"name\":\"stockd\",\"password\":\"$stockd\"}" 2>/dev/null; then
  echo "etcd knows stockd already"
  exit
fi
may() { ask "$@" 2>/dev/null || true; } # where an earlier try came half of the way
may user/add "{\"name\":\"root\",\"password\":\"$root\"}"
may user/grant '{"user":"root","role":"root"}'
may role/add '{"name":"stockd"}'
# stockd/ and, as the end of all that begins with it, stockd0.
ask role/grant '{"name":"stockd","perm":{"permType":"READWRITE","key":"c3RvY2tkLw==","range_end":"c3RvY2tkMA=="}}'
may user/add "{\"name\":\"stockd\",\"password\":\"$stockd\"}"
ask user/grant '{"user":"stockd","role":"stockd"}'
may user/add '{"name":"health","password":"health"}'
ask enable '{}'
echo "etcd asks for passwords"
