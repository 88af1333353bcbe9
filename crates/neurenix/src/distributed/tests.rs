use std::{
    env,
    net::TcpListener,
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use phynexus::{DType, distributed::Transport, op::Combine};

use super::*;

const TIME: Duration = Duration::from_secs(20);
/// An address at which no other test takes a port that these have given up.
const OWN: &str = if cfg!(target_os = "linux") { "127.0.0.4" } else { "127.0.0.1" };

fn options(rank: Option<usize>, world_size: Option<usize>) -> InitOptions {
    InitOptions { rank, world_size, timeout: TIME, ..InitOptions::default() }
}

/// A port that was free a moment ago.
fn port() -> u16 {
    TcpListener::bind((OWN, 0)).unwrap().local_addr().unwrap().port()
}

fn environment(rank: usize, world_size: usize, port: u16) -> Environment {
    let options = InitOptions {
        address: Some(OWN.to_owned()),
        port: Some(port),
        ..options(Some(rank), Some(world_size))
    };
    options.environment(|_| None).unwrap()
}

#[test]
fn a_process_alone_is_a_world() {
    assert!(world().is_none());
    destroy();
    let alone = options(Some(0), Some(1));
    let group = init(&alone).unwrap();
    assert_eq!((group.rank(), group.size()), (0, 1));
    assert!(Arc::ptr_eq(&world().unwrap(), &group));
    let mut values = [1, 2];
    group.transport().all_reduce(&mut values, DType::U8, Combine::Sum).unwrap();
    group.transport().barrier().unwrap();
    assert_eq!(values, [1, 2]);
    let again = init(&alone).err().unwrap().to_string();
    assert!(again.contains("destroy() first"), "{again}");
    destroy();
    assert!(world().is_none());
    let closed = group.transport().barrier();
    assert!(closed.is_ok(), "one rank exchanges nothing: {closed:?}");
    // An attempt that fails leaves room for the next one.
    let mpi = InitOptions { backend: Backend::Mpi, ..alone.clone() };
    // Without its launcher, or its library.
    assert!(init(&mpi).err().unwrap().to_string().starts_with("mpi"));
    init(&alone).unwrap();
    destroy();
}

#[test]
fn options_come_before_variables() {
    let variables = |name: &str| {
        let value = match name {
            "RANK" | "LOCAL_RANK" => "3",
            "WORLD_SIZE" | "LOCAL_WORLD_SIZE" => "4",
            "MASTER_ADDR" => "node0",
            "MASTER_PORT" => "29500",
            "TORCHELASTIC_USE_AGENT_STORE" => "True",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let read = options(None, None).environment(variables).unwrap();
    assert_eq!((read.rank, read.local_rank, read.master_port), (3, 3, Some(29501)));
    let read =
        InitOptions { port: Some(7), address: Some("localhost".to_owned()), ..options(Some(1), Some(2)) };
    let read = read.environment(variables).unwrap();
    assert_eq!((read.rank, read.world_size, read.local_rank, read.local_world_size), (1, 2, 1, 2));
    assert_eq!((read.master_addr.as_deref(), read.master_port), (Some("localhost"), Some(7)));
    let half = options(Some(1), None).environment(|_| None).unwrap_err().to_string();
    assert!(half.contains("WORLD_SIZE: it is not set"), "{half}");
}

#[test]
fn an_address_that_is_missing_is_named() {
    let mut environment = environment(0, 2, 1);
    environment.master_port = None;
    let error = rendezvous(&environment, "0", TIME).err().unwrap();
    assert!(matches!(error, Error::Environment { variable: "MASTER_PORT", .. }), "{error}");
    environment.master_addr = None;
    let error = rendezvous(&environment, "0", TIME).err().unwrap();
    assert!(matches!(error, Error::Environment { variable: "MASTER_ADDR", .. }), "{error}");
}

#[test]
fn ranks_meet_although_one_finds_the_store_of_an_earlier_group() {
    let port = port();
    let old = Store::connect(OWN, port, true, TIME).unwrap();
    thread::scope(|scope| {
        let ranks = [1, 2]
            .map(|rank| scope.spawn(move || rendezvous(&environment(rank, 3, port), "0.1", TIME).unwrap()));
        // Both wait in the old store for the number of the job.
        old.wait(&["0.1/rank/1", "0.1/rank/2"]).unwrap();
        drop(old);
        let first = rendezvous(&environment(0, 3, port), "0.1", TIME).unwrap();
        // The port is free again.
        let listener = TcpListener::bind((OWN, port)).unwrap();
        let others = ranks.map(|rank| rank.join().unwrap());
        let barriers = others.map(|rank| scope.spawn(move || rank.barrier().unwrap()));
        first.barrier().unwrap();
        barriers.into_iter().for_each(|barrier| barrier.join().unwrap());
        drop(listener);
    });
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let port = port();
    let begun = Instant::now();
    let limit = Duration::from_millis(300);
    thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            scope
                .spawn(move || rendezvous(&environment(rank, 3, port), "0", limit).err().unwrap().to_string())
        });
        for error in ranks.map(|rank| rank.join().unwrap()) {
            assert!(error.contains("rank 2"), "{error}");
        }
    });
    assert!(begun.elapsed() >= limit);
    let error = rendezvous(&environment(1, 2, port), "0", limit).err().unwrap().to_string();
    assert!(error.contains(&format!("{OWN}:{port}")) && error.contains("check that rank 0 runs"), "{error}");
}

#[test]
fn ranks_that_contradict_each_other_are_refused() {
    let port = port();
    thread::scope(|scope| {
        let first = scope.spawn(move || rendezvous(&environment(0, 3, port), "0", TIME).err().unwrap());
        let other_size = rendezvous(&environment(1, 2, port), "0", TIME).err().unwrap();
        assert!(matches!(other_size, Error::Environment { variable: "WORLD_SIZE", .. }), "{other_size}");
        // Rank 0 does not wait in vain.
        let first = first.join().unwrap().to_string();
        assert!(first.contains("rank 1 failed: WORLD_SIZE: it is 2"), "{first}");
    });
    thread::scope(|scope| {
        let ranks = [0, 1, 1].map(|rank| {
            scope.spawn(move || rendezvous(&environment(rank, 3, port), "0", TIME).err().unwrap())
        });
        let errors = ranks.map(|rank| rank.join().unwrap());
        let refused = |error: &Error| matches!(error, Error::Environment { variable: "RANK", .. });
        assert_eq!(errors.iter().filter(|error| refused(error)).count(), 1, "{errors:?}");
        assert!(errors.iter().all(|error| error.to_string().contains("has rank 1, too")), "{errors:?}");
    });
}

/// Set in processes that a test, or a launcher, starts.
const LAUNCHED: &str = "NEURENIX_TEST_LAUNCHED";

#[test]
fn launched_processes_are_a_world() {
    const SIZE: usize = 3;
    if env::var_os(LAUNCHED).is_some() {
        // Twice, because each world has its own store at the same port.
        for _ in 0..2 {
            let group = init(&InitOptions { timeout: TIME, ..InitOptions::default() }).unwrap();
            let mut values = [1 << group.rank()];
            group.transport().all_reduce(&mut values, DType::U8, Combine::Sum).unwrap();
            println!("rank {} of {}: {}", group.rank(), group.size(), values[0]);
            destroy();
        }
        return;
    }
    let port = port().to_string();
    let start = |rank: usize| {
        let mut command = Command::new(env::current_exe().unwrap());
        let test = "distributed::tests::launched_processes_are_a_world";
        command.args([test, "--exact", "--nocapture", "--test-threads", "1"]);
        command.env(LAUNCHED, "1").env("RANK", rank.to_string()).env("WORLD_SIZE", SIZE.to_string());
        command.env("MASTER_ADDR", OWN).env("MASTER_PORT", &port);
        for other in ["LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE"] {
            command.env_remove(other);
        }
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    for (rank, child) in [0, 1, 2].map(start).into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{rank}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.matches(&format!("rank {rank} of 3: 7")).count(), 2, "{text}");
    }
}
