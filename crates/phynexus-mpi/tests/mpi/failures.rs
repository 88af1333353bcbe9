//! Ranks that differ, are late, are interrupted or end.

use std::{thread, time::Duration};

use phynexus::{
    Error, Result,
    distributed::{Incoming, Outgoing, Transport},
    interrupt,
};

use crate::{collectives::LIMIT, passed};

const SHORT: Duration = Duration::from_millis(1500);

fn assert_error(result: Result<()>, parts: &[&str]) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Collective { .. }), "{error}");
    let error = error.to_string();
    assert!(parts.iter().all(|part| error.contains(part)), "{error} lacks one of {parts:?}");
}

/// After a failure, calls are errors at once.
fn assert_unusable(transport: &dyn Transport) {
    assert_error(transport.barrier(), &["nothing can follow an earlier failure"]);
    let mut bytes = [0];
    let receive = Incoming { bytes: &mut bytes, from: (transport.rank() + 1) % transport.size() };
    assert_error(transport.exchange(None, Some(receive)), &["start the job again"]);
}

/// Ranks that disagree about the length, of a message and of a collective.
pub(crate) fn lengths() -> Result<()> {
    let [messages, collectives, long] = [LIMIT, LIMIT, SHORT].map(phynexus_mpi::connect);
    let (messages, collectives, long) = (messages?, collectives?, long?);
    let (rank, last) = (messages.rank(), messages.size() - 1);
    match rank {
        0 => messages.exchange(Some(Outgoing { bytes: &[1; 10], to: 1 }), None)?,
        1 => {
            let receive = Incoming { bytes: &mut [0; 12], from: 0 };
            let error = "exchange on rank 1 of ";
            assert_error(
                messages.exchange(None, Some(receive)),
                &[error, "rank 0 sent 10 bytes, where 12 were expected"],
            );
            assert_unusable(&*messages);
        }
        _ => {}
    }
    let width = if rank == last { 16 } else { 8 };
    let gathered = collectives.all_gather(&vec![0; width], &mut vec![0; width * (last + 1)]);
    let error = match rank == last {
        true => "rank 0 sent 8 bytes, where 16 were expected".to_owned(),
        false => format!("rank {last} sent 16 bytes, where 8 were expected"),
    };
    assert_error(gathered, &[&format!("all_gather on rank {rank} of {}: {error}", last + 1)]);
    assert_unusable(&*collectives);
    // The sender of a long message finds out by the time limit.
    match rank {
        0 => {
            let send = Outgoing { bytes: &vec![1; 5_000_000], to: 1 };
            assert_error(long.exchange(Some(send), None), &["rank 1 has received nothing for 1.5 s"]);
        }
        1 => {
            let receive = Incoming { bytes: &mut [0; 3], from: 0 };
            assert_error(long.exchange(None, Some(receive)), &["rank 0 sent 5000000 bytes, where 3 were"]);
        }
        _ => {}
    }
    passed(&*messages);
    Ok(())
}

/// Ranks that call different collectives.
pub(crate) fn calls() -> Result<()> {
    let transport = phynexus_mpi::connect(LIMIT)?;
    match transport.rank() {
        0 => assert_error(
            transport.barrier(),
            &[
                "barrier on rank 0 of",
                "rank 1 calls broadcast of 5 bytes from rank 1, where this rank calls barrier of 0 bytes",
            ],
        ),
        rank => assert_error(
            transport.broadcast(&mut [0; 5], 1),
            &[
                &format!("broadcast on rank {rank} of"),
                "rank 0 calls barrier of 0 bytes, where this rank calls broadcast of 5 bytes from rank 1",
            ],
        ),
    }
    assert_unusable(&*transport);
    passed(&*transport);
    Ok(())
}

/// A rank that does not come to a collective.
pub(crate) fn late() -> Result<()> {
    let transport = phynexus_mpi::connect(SHORT)?;
    let last = transport.size() - 1;
    transport.barrier()?;
    if transport.rank() != last {
        let error = format!("rank {last} has not called it for 1.5 s");
        assert_error(transport.all_gather(&[0], &mut vec![0; last + 1]), &[&error]);
        assert_unusable(&*transport);
    }
    passed(&*transport);
    Ok(())
}

/// A rank that comes after more than half of the time limit, when the others have told each other that they wait.
pub(crate) fn slow() -> Result<()> {
    let transport = phynexus_mpi::connect(Duration::from_secs(6))?;
    if transport.rank() == 0 {
        thread::sleep(Duration::from_millis(3_300));
    }
    let mut all = vec![0; transport.size()];
    transport.all_gather(&[transport.rank() as u8], &mut all)?;
    assert!(all.into_iter().eq(0..transport.size() as u8));
    transport.barrier()?;
    passed(&*transport);
    Ok(())
}

/// A rank that sends nothing.
pub(crate) fn silent() -> Result<()> {
    let transport = phynexus_mpi::connect(SHORT)?;
    let last = transport.size() - 1;
    transport.barrier()?;
    if transport.rank() != last {
        let receive = Incoming { bytes: &mut vec![0; 1_000_000], from: last };
        let error = format!("rank {last} has sent nothing for 1.5 s");
        assert_error(transport.exchange(None, Some(receive)), &[&error]);
        assert_unusable(&*transport);
    }
    passed(&*transport);
    Ok(())
}

/// Waits that are interrupted.
pub(crate) fn interrupted() -> Result<()> {
    let [messages, collectives] = [LIMIT, LIMIT].map(phynexus_mpi::connect);
    let (messages, collectives) = (messages?, collectives?);
    if messages.rank() == 0 {
        let _watch = interrupt::watch(|| true);
        let receive = Incoming { bytes: &mut [0; 100], from: 1 };
        assert!(matches!(messages.exchange(None, Some(receive)), Err(Error::Interrupted)));
        assert_unusable(&*messages);
        let _watch = interrupt::watch(|| true);
        assert!(matches!(collectives.barrier(), Err(Error::Interrupted)));
        assert_unusable(&*collectives);
    }
    passed(&*messages);
    Ok(())
}

/// A rank that panics while the others wait for it. They wait longer than a launcher may take.
pub(crate) fn panicking() -> Result<()> {
    let transport = phynexus_mpi::connect(Duration::from_secs(3600))?;
    passed(&*transport);
    assert!(transport.rank() != 1, "rank 1 ends");
    transport.barrier()
}
