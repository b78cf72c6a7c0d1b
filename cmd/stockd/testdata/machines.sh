# Three machines, 10.0.0.11 to 10.0.0.13: each has a network of its own, and a copy of this machine's files that ends with the
# session, with those of stockd's package. The session goes on on the first; ssh and scp reach the others, and systemctl does
# what the pages need of it. $CURL_HOME is the folder of the session, $REPOSITORY this tree.
: "${CURL_HOME:?}" "${REPOSITORY:?}"
if [ "${1-}" != inside ]; then
  cat >"$CURL_HOME/boot" <<'END'
set -e
t=$CURL_HOME/machine$1; mkdir "$t"; mount -t tmpfs tmpfs "$t"; mkdir "$t/upper" "$t/work" "$t/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$t/upper,workdir=$t/work" "$t/root"
cd "$t/root"
mkdir -p "./$REPOSITORY" "./$CURL_HOME"; mount --bind "$REPOSITORY" "./$REPOSITORY"; mount --bind "$CURL_HOME" "./$CURL_HOME"
touch ./usr/bin/stockd; mount --bind "$(sed -n 's/^exec "\(.*\)" "$@"$/\1/p' "$CURL_HOME/stockd")" ./usr/bin/stockd
mount --rbind /proc ./proc; mount --rbind /dev ./dev; mount -t tmpfs tmpfs ./run
rm -rf ./var/lib/mysql ./var/lib/redis ./var/lib/prometheus ./etc/nginx/conf.d/* ./etc/nginx/sites-enabled/* ./etc/stockd
for user in mysql redis prometheus; do install -d -o $user -g $user ./var/lib/$user; done
install -d -o mysql -g mysql ./run/mysqld; install -d -o redis -g redis ./run/redis
sed -n 's/.*{dst: \(.*\), src: \([^,}]*\).*/\2 \1/p' "$REPOSITORY/.goreleaser.yaml" | while read -r from to; do
  install -D -m 644 "$REPOSITORY/$from" ".$to"
done
until ip link set eth0 up 2>/dev/null; do sleep 0.05; done
ip link set lo up; ip addr add 10.0.0.1$1/24 dev eth0
chroot . sh -e "$REPOSITORY/deploy/systemd/installed.sh"
touch "$CURL_HOME/ready$1"
exec chroot . sleep 3600
END
  cat >"$CURL_HOME/ssh" <<'END'
#!/bin/sh
# ssh HOST COMMAND... runs it on another machine.
at=/proc/$(cat "$CURL_HOME/pid${1#10.0.0.1}") && shift
exec nsenter --mount=$at/ns/mnt --net=$at/ns/net --root=$at/root --wd=$at/root/root sh -c "$*"
END
  cat >"$CURL_HOME/scp" <<'END'
#!/bin/sh
# scp FILE HOST:FOLDER
exec ssh "${2%%:*}" "cat >${2#*:}$(basename "$1")" <"$1"
END
  cat >"$CURL_HOME/systemctl" <<'END'
#!/bin/sh
# systemctl VERB... UNIT ends the program of the unit, and starts it but for stop. Of stockd.service it reads the files of the
# environment, and what is executed.
set -e
environment=
for unit; do :; done
of() { sed -n "s/^$1=-\{0,1\}//p" /usr/lib/systemd/system/stockd.service; }
case "$*" in *KILL*) signal=KILL ;; *) signal=TERM ;; esac
if [ -e /run/unit.$unit ]; then
  kill -$signal "$(cat /run/unit.$unit)"
  while kill -0 "$(cat /run/unit.$unit)" 2>/dev/null; do sleep 0.1; done
  rm /run/unit.$unit
fi
[ "$1" != stop ] || exit 0
run() { user=$1 && shift; setpriv --reuid $user --regid $user --clear-groups env -i PATH="$PATH" $environment "$@" >"$CURL_HOME/$unit.$$.log" 2>&1 </dev/null & echo $! >/run/unit.$unit; }
case "$unit" in
stockd)
  environment=$(for file in $(of EnvironmentFile); do cat "$file" 2>/dev/null | tr -d '"' || true; done)
  run stockd $(of ExecStart)
  env -i PATH="$PATH" $environment sh -c "$(of ExecStartPost)" ;;
mariadb) run mysql mariadbd; until mariadb-admin ping >/dev/null 2>&1; do sleep 0.1; done ;;
redis-server) run redis redis-server /etc/redis/redis.conf --daemonize no; until redis-cli -h 10.0.0.11 ping >/dev/null 2>&1; do sleep 0.1; done ;;
nginx) rm -f /run/nginx.pid; run root nginx -g 'daemon off;'; until [ -s /run/nginx.pid ]; do kill -0 "$(cat /run/unit.nginx)"; sleep 0.1; done ;;
prometheus) run prometheus prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/var/lib/prometheus ;;
*) exit 5 ;;
esac
END
  chmod +x "$CURL_HOME/ssh" "$CURL_HOME/scp" "$CURL_HOME/systemctl"
  ip link add switch type bridge; ip link set switch up
  for n in 1 2 3; do
    unshare --mount --net sh "$CURL_HOME/boot" $n >"$CURL_HOME/boot$n.log" 2>&1 </dev/null &
    until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
    ip link add port$n type veth peer name eth0 netns $!
    ip link set port$n master switch up
    echo $! >"$CURL_HOME/pid$n"
  done
  for n in 1 2 3; do
    until [ -e "$CURL_HOME/ready$n" ]; do kill -0 "$(cat "$CURL_HOME/pid$n")" || { cat "$CURL_HOME/boot$n.log"; exit 1; }; sleep 0.1; done
  done
  ssh 10.0.0.11 mariadb-install-db --user=mysql >/dev/null
  sleep 3600 & # the switch is there for as long as a process is in this network
  exec ssh 10.0.0.11 HOME=/root sh "$0" inside
fi
