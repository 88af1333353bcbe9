use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Environment> {
    Environment::read(|name| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

/// The place, the launcher and the address.
fn summary(variables: &[(&str, &str)]) -> ([usize; 4], Launcher, Option<String>, Option<u16>) {
    let read = read(variables).unwrap();
    let place = [read.rank, read.world_size, read.local_rank, read.local_world_size];
    (place, read.launcher, read.master_addr, read.master_port)
}

const TORCHRUN: [(&str, &str); 8] = [
    ("RANK", "5"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "4"),
    ("MASTER_ADDR", "node0"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_USE_AGENT_STORE", "False"),
    ("TORCHELASTIC_RESTART_COUNT", "2"),
];

const OPEN_MPI: [(&str, &str); 6] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("OMPI_MCA_orte_hnp_uri", "54329344.0;tcp://192.0.2.2:37081"),
    ("PMIX_NAMESPACE", "54329345"),
];

const SLURM: [(&str, &str); 8] = [
    ("SLURM_PROCID", "6"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_LOCALID", "2"),
    ("SLURM_NTASKS_PER_NODE", "4"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_JOB_ID", "77"),
    ("SLURM_STEP_NODELIST", "gpu[03-04]"),
    ("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"),
];

#[test]
fn launchers_are_recognised() {
    assert_eq!(summary(&[]), ([0, 1, 0, 1], Launcher::Single, None, None));
    let torchrun = ([5, 8, 1, 4], Launcher::Torchrun, Some("node0".to_owned()), Some(29500));
    assert_eq!(summary(&TORCHRUN), torchrun);
    assert_eq!(read(&TORCHRUN).unwrap().restart_count, 2);
    let (place, launcher, addr, port) = summary(&OPEN_MPI);
    assert_eq!((place, launcher, addr.as_deref()), ([1, 2, 1, 2], Launcher::OpenMpi, Some("127.0.0.1")));
    assert!((20_000..60_000).contains(&port.unwrap()));
    let hydra = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "1")];
    assert_eq!(summary(&hydra), ([0, 2, 0, 1], Launcher::Mpich, None, None));
    let (place, launcher, addr, port) = summary(&SLURM);
    assert_eq!((place, launcher, addr.as_deref()), ([6, 8, 2, 4], Launcher::Slurm, Some("gpu03")));
    assert!((20_000..60_000).contains(&port.unwrap()));
}

#[test]
fn torchrun_wins_and_mpirun_wins_over_slurm() {
    // mpirun in an allocation starts its daemons with srun, whose variables its processes inherit.
    assert_eq!(summary(&[&OPEN_MPI[..], &SLURM[..]].concat()).0, [1, 2, 1, 2]);
    let all = [&SLURM[..], &OPEN_MPI[..], &TORCHRUN[..]].concat();
    assert_eq!(summary(&all), summary(&TORCHRUN));
    // `srun --mpi=pmi2` gives the rank twice, the local one only once.
    let pmi2 = [&SLURM[..], &[("PMI_RANK", "6"), ("PMI_SIZE", "8")][..]].concat();
    assert_eq!(summary(&pmi2).1, Launcher::Slurm);
}

#[test]
fn a_batch_script_is_not_a_step() {
    let without = |step: Option<&'static str>| {
        let mut all: Vec<_> = SLURM.into_iter().filter(|(name, _)| *name != "SLURM_STEP_ID").collect();
        all.extend(step.map(|step| ("SLURM_STEP_ID", step)));
        summary(&all).1
    };
    assert_eq!(without(None), Launcher::Single);
    // 0xfffffffb: a batch script.
    assert_eq!(without(Some("4294967291")), Launcher::Single);
    assert_eq!(without(Some("3")), Launcher::Slurm);
}

#[test]
fn places_on_a_host_follow_from_what_is_known() {
    let place = |more: &[(&'static str, &'static str)]| {
        summary(&[&[("RANK", "1"), ("WORLD_SIZE", "4")], more].concat()).0
    };
    assert_eq!(place(&[]), [1, 4, 0, 1]);
    assert_eq!(place(&[("MASTER_ADDR", "localhost")]), [1, 4, 1, 4]);
    assert_eq!(place(&[("MASTER_ADDR", "127.0.0.1"), ("LOCAL_RANK", "1")]), [1, 4, 1, 4]);
    assert_eq!(place(&[("MASTER_ADDR", "node0"), ("LOCAL_RANK", "1")]), [1, 4, 1, 2]);
    assert_eq!(place(&[("LOCAL_RANK", ""), ("LOCAL_WORLD_SIZE", " ")]), [1, 4, 0, 1]);
    // A step with more processes on a node than the allocation has per node.
    let step = |more: &[(&'static str, &'static str)]| summary(&[more, &SLURM].concat()).0;
    assert_eq!(step(&[("SLURM_LOCALID", "6")]), [6, 8, 6, 7]);
    assert_eq!(step(&[("SLURM_STEP_NUM_NODES", "1"), ("SLURM_LOCALID", "6")]), [6, 8, 6, 8]);
}

#[test]
fn the_store_of_torchrun_keeps_its_port() {
    let port = |port: &'static str, agent: &'static str| {
        let agent = [("TORCHELASTIC_USE_AGENT_STORE", agent), ("MASTER_PORT", port)];
        read(&[&agent, &TORCHRUN[..5]].concat()).map(|environment| environment.master_port)
    };
    assert_eq!(port("29500", "True").unwrap(), Some(29501));
    assert_eq!(port("29500", "False").unwrap(), Some(29500));
    assert!(port("65535", "True").unwrap_err().to_string().contains("use a lower port"));
    assert_eq!(port("65535", "").unwrap(), Some(65535));
    assert!(port("0", "").unwrap_err().to_string().contains("1 to 65535"));
    assert!(port("65536", "").is_err());
}

#[test]
fn ports_of_jobs_differ() {
    let port =
        |uri: &'static str| summary(&[&[("OMPI_MCA_orte_hnp_uri", uri)], &OPEN_MPI[..4]].concat()).3.unwrap();
    let ports: std::collections::BTreeSet<u16> =
        ["1.0;tcp://a:1", "2.0;tcp://a:1", "1.0;tcp://a:2", "1.0;tcp://b:1"].into_iter().map(port).collect();
    assert_eq!(ports.len(), 4);
    // Without an identity of the job there is no port that all would find.
    assert_eq!(summary(&OPEN_MPI[..4]).3, None);
}

#[test]
fn the_first_host_of_a_list() {
    let expected = [
        ("node1", Some("node1")),
        ("node1,node2", Some("node1")),
        ("node[03-05,07],other", Some("node03")),
        ("rack[2]-node,x", Some("rack2-node")),
        ("rack[1-2]node[3-4]", None),
        ("node[1", None),
        ("", None),
    ];
    for (list, host) in expected {
        assert_eq!(first_host(list).as_deref(), host, "{list}");
    }
}

/// Variables, the one that is wrong, and a part of the message.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);

#[test]
fn contradictions_name_the_variable_and_the_remedy() {
    let cases: [Case<'_>; 12] = [
        (&[("RANK", "0")], "WORLD_SIZE", "set both"),
        (&[("WORLD_SIZE", "2")], "RANK", "set both"),
        (&[("RANK", "2"), ("WORLD_SIZE", "2")], "RANK", "expected 0 to 1"),
        (&[("RANK", "0"), ("WORLD_SIZE", "0")], "WORLD_SIZE", "at least one"),
        (&[("RANK", "-1"), ("WORLD_SIZE", "2")], "RANK", "expected a whole number, got \"-1\""),
        (&[("RANK", "0"), ("WORLD_SIZE", "two")], "WORLD_SIZE", "expected a whole number"),
        (
            &[("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")],
            "LOCAL_RANK",
            "LOCAL_WORLD_SIZE is: set both",
        ),
        (
            &[("RANK", "0"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "2")],
            "LOCAL_RANK",
            "expected 0 to 1",
        ),
        (
            &[("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "4")],
            "LOCAL_WORLD_SIZE",
            "no more processes than the job",
        ),
        (&[("OMPI_COMM_WORLD_SIZE", "2")], "OMPI_COMM_WORLD_RANK", "set both"),
        (&[("PMI_RANK", "0")], "PMI_SIZE", "set both"),
        (&[("SLURM_PROCID", "0"), ("SLURM_STEP_ID", "0")], "SLURM_NTASKS", "set both"),
    ];
    for (variables, expected, remedy) in cases {
        match read(variables) {
            Err(Error::Environment { variable, message }) => {
                assert_eq!(variable, expected, "{variables:?}: {message}");
                assert!(message.contains(remedy), "{variables:?}: {message}");
            }
            other => panic!("{variables:?}: {other:?}"),
        }
    }
}
