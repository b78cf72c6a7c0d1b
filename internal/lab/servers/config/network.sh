# Connects hosts and this machine by a switch: $1 begins every address, $2 is the interface here, $3 the process whose
# namespace has the switch, and what follows are those of the hosts.
subnet=$1 here=$2 switch=$3
shift 3
in_switch() { nsenter -t "$switch" -n ip "$@"; }

in_switch link add switch type bridge
in_switch link set switch up
ip link add "$here" type veth peer name uplink netns "$switch"
in_switch link set uplink master switch up
ip address add "${subnet}254/24" dev "$here"
ip link set "$here" up
number=0
for host in "$@"; do
  number=$((number + 1))
  in_switch link add "host$number" type veth peer name eth0 netns "$host"
  in_switch link set "host$number" master switch up
  nsenter -t "$host" -n ip link set lo up
  nsenter -t "$host" -n ip address add "$subnet$number/24" dev eth0
  nsenter -t "$host" -n ip link set eth0 up
done
