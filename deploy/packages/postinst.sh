#!/bin/sh
# The service is not started by its installation: its configuration comes first.
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart sekisho
fi
