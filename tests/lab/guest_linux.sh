#!/bin/busybox sh
# The whole of the small Linux: it serves HTTP until its power button is pressed.
#
# GET / does `web.turns` turns of a loop (of the kernel's command line; ?turns=N of a request goes before it), prints
# "served" on the first serial port and answers; GET /up answers at once. `web.address` is address/prefix of the first
# network interface, `web.gateway` may be empty.
/bin/busybox mkdir -p /proc /sys /dev /etc/acpi/PWRF /www/cgi-bin /usr/bin /usr/sbin /sbin
/bin/busybox --install -s
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod "/modules/$module"; done </modules/order

value() {
    for word in $(cat /proc/cmdline); do
        case $word in "$1="*) echo "${word#*=}" ;; esac
    done
}

ip link set lo up
ip link set eth0 up
ip addr add "$(value web.address)" dev eth0
gateway=$(value web.gateway)
[ -z "$gateway" ] || ip route add default via "$gateway"

echo up >/www/up
cat >/www/cgi-bin/index.cgi <<PAGE
#!/bin/sh
turns=$(value web.turns)
case \$QUERY_STRING in turns=*) turns=\${QUERY_STRING#turns=} ;; esac
turn=0
while [ \$turn -lt "\$turns" ]; do turn=\$((turn + 1)); done
echo served >/dev/ttyS0
printf 'Content-Type: text/plain\r\n\r\n%s %s\n' "$(value web.address)" "\$turn"
PAGE
printf '#!/bin/sh\npoweroff -f\n' >/etc/acpi/PWRF/00000080
chmod +x /www/cgi-bin/index.cgi /etc/acpi/PWRF/00000080
httpd -h /www
acpid -d >/dev/null 2>&1 &  # as a daemon it wants a log and a file with its id
echo ready >/dev/ttyS0
while :; do sleep 86400; done
