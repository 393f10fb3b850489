# Run a program in a file system that has nothing but the programs of this machine, the processes of
# its own namespace, and the folders that the variable KEEP names, a line each.
set -e
root="$1"
shift
mount -t tmpfs none "$root"
printf '%s\n' /usr /bin /lib /lib64 /sbin /etc /dev "$KEEP" | while read -r each; do
  [ -e "$each" ] || continue
  mkdir -p "$root$each"
  mount --rbind "$each" "$root$each"
done
mkdir -p "$root/proc"
mount -t proc proc "$root/proc"
mount -t tmpfs none "$root/dev/shm"
exec chroot "$root" "$@"
