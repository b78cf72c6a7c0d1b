#!/bin/sh
# After the package has brought its files. It starts nothing: the shop has no configuration yet.
set -e
systemd-sysusers /usr/lib/sysusers.d/stockd.conf
chown root:stockd /etc/stockd
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
