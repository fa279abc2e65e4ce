use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::config::{Destination, Host};

/// What may be reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// By name and port, exactly.
    pub(crate) destinations: Vec<Destination>,
    /// What names may stand for, besides public addresses.
    pub(crate) private_networks: Vec<IpNet>,
}

impl Rules {
    /// Whether that is on the list.
    pub(super) fn admit(&self, wanted: &Destination) -> bool {
        self.destinations.contains(wanted)
    }

    /// Whether `host`, which is on the list, may stand for `address`. Whoever answers for a name could
    /// answer with what only the host can reach: its own services, its neighbours, the metadata of its
    /// cloud.
    pub(super) fn may_stand_for(&self, host: &Host, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_listed = matches!(host, Host::Address(listed) if listed.to_canonical() == address);
        let is_allowed = |network: &IpNet| network.contains(&address);
        is_listed || is_public(address) || self.private_networks.iter().any(is_allowed)
    }
}

/// Whether an address is one of the Internet's (IANA's special-purpose address registries, RFC 6890).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        // "This network", private, loopback, link-local, multicast and reserved, broadcast.
        (0 | 10 | 127 | 224.., _, _) | (169, 254, _) | (172, 16..=31, _) | (192, 168, _) => true,
        // Shared by carriers; benchmarks.
        (100, 64..=127, _) | (198, 18..=19, _) => true,
        // Protocol assignments, documentation, 6to4 relays.
        (192, 0, 0 | 2) | (198, 51, 100) | (203, 0, 113) | (192, 88, 99) => true,
        _ => false,
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // Those that hold an IPv4 address are as public as it: NAT64 and 6to4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
        }
        // Protocol assignments with Teredo, documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Nothing else is global unicast.
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let destinations = ["api.test:443", "10.0.0.9:80", "[::1]:80"];
        Rules {
            destinations: destinations.map(|text| text.parse().expect("valid")).into(),
            private_networks: vec!["10.1.0.0/16".parse().expect("valid")],
        }
    }

    #[test]
    fn what_is_listed_is_admitted_and_nothing_like_it() {
        for (wanted, admitted) in [
            ("api.test:443", true),
            ("API.test.:443", true),
            ("10.0.0.9:80", true),
            ("[0:0::1]:80", true),
            ("api.test:80", false),
            ("x.api.test:443", false),
            ("test:443", false),
            ("10.0.0.9:443", false),
        ] {
            let wanted: Destination = wanted.parse().expect(wanted);
            assert_eq!(rules().admit(&wanted), admitted, "{wanted}");
        }
    }

    #[test]
    fn a_name_stands_for_public_addresses_and_those_that_are_allowed() {
        let name: Host = "api.test".parse().expect("valid");
        for (address, may) in [
            ("1.1.1.1", true),
            ("172.32.0.1", true),
            ("192.0.1.1", true),
            ("10.1.255.1", true),
            ("::ffff:10.1.2.3", true),
            ("2606:4700::1111", true),
            ("64:ff9b::1.1.1.1", true),
            ("0.0.0.0", false),
            ("10.0.0.9", false),
            ("100.64.0.1", false),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("192.168.1.1", false),
            ("198.18.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::127.0.0.1", false),
            ("64:ff9b::127.0.0.1", false),
            ("2002:7f00:1::1", false),
            ("2001:0:1::1", false),
            ("2001:db8::1", false),
            ("fc00::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
        ] {
            let address = address.parse().expect(address);
            assert_eq!(rules().may_stand_for(&name, address), may, "{address}");
        }
    }

    #[test]
    fn an_address_that_is_listed_stands_for_itself() {
        let host: Host = "10.0.0.9".parse().expect("valid");
        assert!(rules().may_stand_for(&host, "10.0.0.9".parse().expect("valid")));
        assert!(!rules().may_stand_for(&host, "10.0.0.8".parse().expect("valid")));
    }
}
