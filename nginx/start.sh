#!/bin/sh
# Fills in the templates and runs nginx, all as the user of the container. The entrypoint
# of the image writes below /etc, which takes root.
set -eu
mkdir -p /tmp/conf.d
names=$(env | sed -n 's/^\(STOCKD_[A-Z_]*\)=.*/${\1}/p')
for template in /etc/nginx/templates/*.template; do
  envsubst "$names" <"$template" >"/tmp/conf.d/$(basename "$template" .template)"
done
exec nginx -e stderr -g 'daemon off;'
