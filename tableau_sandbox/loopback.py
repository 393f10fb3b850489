from ipaddress import IPv6Address, ip_address


def is_loopback(host: str) -> bool:
    """Whether an IP address belongs to this machine alone."""
    address = ip_address(host)
    # A socket for both versions of IP shows 127.0.0.1 as ::ffff:127.0.0.1.
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
