//! Decides which clients come in, and how much room each of them may take: connections and bytes of bodies, by client
//! address. So no client can take a switch's whole control API, and the hosts of running jobs still have room when
//! others fill the rest.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tributary_control::Client;

use crate::http::access::Access;

/// The most connections of all clients together, without those of members of running jobs.
const GUESTS: usize = 4_096;
/// The most connections of one client. All ranks of the largest job may run on one machine.
const OF_A_CLIENT: usize = 1_088;
/// The most connections of one client on which members of running jobs wait for news. Each member has one, and a second
/// one while it asks again.
const WATCHES_OF_A_CLIENT: usize = 2 * OF_A_CLIENT;
/// The most bytes of long bodies that one client may be sending ...
const BODIES_OF_A_CLIENT: usize = 2 << 20;
/// ... and that all clients together may be sending.
const BODIES: usize = 16 << 20;

#[derive(Default)]
struct Room {
    guests: usize,
    watches: usize,
    body_bytes: usize,
}

impl Room {
    fn is_empty(&self) -> bool {
        self.guests + self.watches + self.body_bytes == 0
    }
}

#[derive(Default)]
struct Rooms {
    all: Room,
    of: HashMap<Client, Room>,
}

/// The room of one listening address.
pub struct Door {
    access: RwLock<Arc<Access>>,
    rooms: Mutex<Rooms>,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The client has as many connections as one client may have.
    Client,
    /// There are as many connections as the switch serves.
    Switch,
}

impl Full {
    /// The sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Full::Client => "your address has as many connections to this switch as one may have: wait until one ends",
            Full::Switch => "this switch has as many connections as it serves: try again in a while",
        }
    }
}

impl Door {
    /// A door for all clients that have access.
    pub fn new(access: Access) -> Arc<Door> {
        Arc::new(Door { access: RwLock::new(Arc::new(access)), rooms: Mutex::default() })
    }

    /// Who may use the switch.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the rules of access.
    pub fn change_access(&self, access: Access) {
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    /// Lets a connection in. `has_members` is called if the answer depends on members of running jobs at the address.
    pub fn enter(self: &Arc<Self>, from: IpAddr, has_members: impl FnOnce() -> bool) -> Result<Visit, Full> {
        let client = Client::at(from);
        let mut rooms = self.lock();
        let Rooms { all, of } = &mut *rooms;
        let own = of.entry(client.clone()).or_default();
        if own.guests >= OF_A_CLIENT {
            return Err(Full::Client);
        }
        if all.guests >= GUESTS && !has_members() {
            if own.is_empty() {
                of.remove(&client);
            }
            return Err(Full::Switch);
        }
        (own.guests, all.guests) = (own.guests + 1, all.guests + 1);
        drop(rooms);
        Ok(Visit { door: Arc::clone(self), client, watches: Mutex::new(false) })
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        let all = &self.lock().all;
        all.guests + all.watches
    }

    fn lock(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().expect("nobody panics while it holds the rooms")
    }

    fn change(&self, client: &Client, change: impl Fn(&mut Room)) {
        let mut rooms = self.lock();
        change(&mut rooms.all);
        let own = rooms.of.entry(client.clone()).or_default();
        change(own);
        if own.is_empty() {
            rooms.of.remove(client);
        }
    }
}

/// A connection that was let in. Dropping it frees its room.
pub struct Visit {
    door: Arc<Door>,
    client: Client,
    watches: Mutex<bool>,
}

impl Visit {
    /// Who may use the switch.
    pub fn access(&self) -> Arc<Access> {
        self.door.access()
    }

    /// Notes that the connection belongs to a member of a running job, so that it no longer takes a guest's room. False
    /// if the client has too many such connections already.
    pub fn becomes_watch(&self) -> bool {
        let mut watches = self.watches.lock().expect("nobody panics while it holds this");
        if *watches {
            return true;
        }
        let has = self.door.lock().of.get(&self.client).map_or(0, |own| own.watches);
        if has >= WATCHES_OF_A_CLIENT {
            return false;
        }
        self.door.change(&self.client, |room| (room.guests, room.watches) = (room.guests - 1, room.watches + 1));
        *watches = true;
        true
    }

    /// Takes room for a long body. `None` if this client, or all clients together, are sending too much already.
    pub fn body(&self, bytes: usize) -> Option<BodyRoom<'_>> {
        {
            let rooms = self.door.lock();
            let own = rooms.of.get(&self.client).map_or(0, |own| own.body_bytes);
            if own + bytes > BODIES_OF_A_CLIENT || rooms.all.body_bytes + bytes > BODIES {
                return None;
            }
        }
        self.door.change(&self.client, |room| room.body_bytes += bytes);
        Some(BodyRoom { visit: self, bytes })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let watches = *self.watches.lock().expect("nobody panics while it holds this");
        self.door.change(&self.client, |room| match watches {
            true => room.watches -= 1,
            false => room.guests -= 1,
        });
    }
}

/// The room that a body takes while it is received.
pub struct BodyRoom<'a> {
    visit: &'a Visit,
    bytes: usize,
}

impl Drop for BodyRoom<'_> {
    fn drop(&mut self) {
        self.visit.door.change(&self.visit.client, |room| room.body_bytes -= self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> IpAddr {
        IpAddr::from([10, 0, (number >> 8) as u8, number as u8])
    }

    #[test]
    fn one_client_fills_its_own_room_and_many_fill_that_of_guests_but_never_that_of_members() {
        let door = Door::new(Access::Open);
        let mut inside = Vec::new();
        for _ in 0..OF_A_CLIENT {
            inside.push(door.enter(host(0), || false).unwrap());
        }
        assert_eq!(door.enter(host(0), || true).err(), Some(Full::Client));
        let mut other = 1;
        while door.connections() < GUESTS {
            inside.push(door.enter(host(other), || false).unwrap());
            other += 1;
        }
        assert_eq!(door.enter(host(9_999), || false).err(), Some(Full::Switch));
        inside.push(door.enter(host(9_999), || true).unwrap());
        drop(inside);
        let rooms = door.lock();
        assert!(rooms.of.is_empty() && rooms.all.is_empty());
    }

    #[test]
    fn watches_of_members_take_no_room_of_guests_and_are_bounded_for_each_client() {
        let door = Door::new(Access::Open);
        let enter = || door.enter(host(0), || false).unwrap();
        let watches: Vec<Visit> =
            (0..WATCHES_OF_A_CLIENT).map(|_| enter()).inspect(|visit| assert!(visit.becomes_watch())).collect();
        let one_more = enter();
        assert!(!one_more.becomes_watch());
        drop((watches, one_more));
        assert_eq!(door.connections(), 0);
    }

    #[test]
    fn bodies_take_bounded_memory() {
        let door = Door::new(Access::Open);
        let visits: Vec<Visit> = (0..20).map(|number| door.enter(host(number), || false).unwrap()).collect();
        let first = (visits[0].body(BODIES_OF_A_CLIENT).unwrap(), visits[0].body(1).is_none());
        assert!(first.1);
        let others: Vec<_> = visits[1..].iter().filter_map(|visit| visit.body(BODIES_OF_A_CLIENT)).collect();
        assert_eq!(others.len(), BODIES / BODIES_OF_A_CLIENT - 1);
        drop((first, others));
        assert!(visits[19].body(BODIES_OF_A_CLIENT).is_some());
    }
}
