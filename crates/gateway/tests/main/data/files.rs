//! Files that are not as they should be: refused with a remedy, and left as they are.

use std::path::Path;
use std::process::Command;

use fairlane::data::{DataFile, Loaded};
use redb::{Database, ReadableDatabase, TableDefinition};

use super::{Folder, ask, begin, end, tenant};
use crate::support::{Backend, KEY, chat_answer, pool, until};

/// A data file with balances of several runs and some records in it.
async fn written(folder: &Folder) {
    let backend = Backend::always(chat_answer(100, 200)).await;
    let gateway = begin(&folder.data(), &tenant(backend.address)).await.unwrap();
    for run in 0..30 {
        assert_eq!(ask(&gateway, &format!("run-{run}")).await, 200);
    }
    gateway.idle().await;
    end(gateway).await;
}

fn read(path: &Path) -> Result<(Loaded, Vec<Vec<u8>>), String> {
    let file = DataFile::open_existing(path).map_err(|error| error.to_string())?;
    let loaded = file.load().map_err(|error| error.to_string())?;
    let records = file.last_records(1_000).map_err(|error| error.to_string())?;
    Ok((loaded, records))
}

fn is_refusal(error: &str, path: &Path) -> bool {
    error.contains(&path.display().to_string())
        && error.contains("nothing was changed")
        && ["damaged", "not a data file", "another version"].iter().any(|what| error.contains(what))
}

#[tokio::test]
async fn a_damaged_file_is_refused_with_a_remedy_and_never_read_as_another_one() {
    let folder = Folder::new("damaged");
    written(&folder).await;
    let good = std::fs::read(folder.data()).unwrap();
    let (loaded, records) = read(&folder.data()).unwrap();
    assert!(loaded.cells.len() > 30 && records.len() == 30);
    let used: Vec<usize> = (0..good.len()).filter(|place| good[*place] != 0).collect();
    let damaged = folder.file("damaged.redb");
    let mut refused = 0;
    for place in used.iter().step_by(used.len() / 100) {
        let mut bytes = good.clone();
        bytes[*place] ^= 0x55;
        std::fs::write(&damaged, &bytes).unwrap();
        match read(&damaged) {
            Err(error) => {
                refused += 1;
                assert!(is_refusal(&error, &damaged), "{error}");
                assert!(std::fs::read(&damaged).unwrap() == bytes, "byte {place}: it was written to");
            }
            // A page that nothing points to.
            Ok((same, same_records)) => {
                assert_eq!(same.cells, loaded.cells, "byte {place}");
                assert_eq!(same_records, records, "byte {place}");
            }
        }
    }
    assert!(refused > 10, "{refused} of 100 were seen");
}

#[tokio::test]
async fn a_file_that_was_cut_off_is_refused_at_every_length() {
    let folder = Folder::new("cut");
    written(&folder).await;
    let good = std::fs::read(folder.data()).unwrap();
    let cut = folder.file("cut.redb");
    for length in [0, 1, 4, 100, 4_096, 10_000, good.len() / 2, good.len() - 4_096, good.len() - 1] {
        std::fs::write(&cut, &good[..length]).unwrap();
        let error = read(&cut).map(|(loaded, _)| loaded.cells.len()).unwrap_err();
        assert!(is_refusal(&error, &cut), "{length}: {error}");
        assert_eq!(std::fs::read(&cut).unwrap(), good[..length], "{length}: it was written to");
    }
}

#[tokio::test]
async fn files_of_another_version_or_program_are_refused_with_a_remedy() {
    let folder = Folder::new("version");
    written(&folder).await;
    let meta: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    {
        let database = Database::open(folder.data()).unwrap();
        let found = database.begin_read().unwrap().open_table(meta).unwrap();
        drop(found);
        let transaction = database.begin_write().unwrap();
        transaction.open_table(meta).unwrap().insert("version", &7_u32.to_le_bytes()[..]).unwrap();
        transaction.commit().unwrap();
    }
    let yaml = pool(&["127.0.0.1:9".parse().unwrap()], "");
    let error = begin(&folder.data(), &yaml).await.err().unwrap();
    assert!(
        error.contains("another version of Fairlane wrote it (version 7") && error.contains("data export"),
        "{error}"
    );
    let foreign = folder.file("foreign.redb");
    drop(Database::create(&foreign).unwrap());
    let text = folder.file("text.redb");
    std::fs::write(&text, "tenants: []\n").unwrap();
    for path in [foreign, text, folder.path.clone()] {
        let error = begin(&path, &yaml).await.err().unwrap();
        assert!(error.contains("it is not a data file of Fairlane"), "{error}");
        assert!(path.exists());
    }
}

#[tokio::test]
async fn a_folder_that_is_not_there_or_may_not_be_written_is_told_of() {
    let folder = Folder::new("nowhere");
    let yaml = pool(&["127.0.0.1:9".parse().unwrap()], "");
    // The kernel's own folder takes no files, whoever asks.
    for path in [folder.file("no/such/fairlane.redb"), "/proc/fairlane.redb".into(), "/proc/version/x".into()]
    {
        let error = begin(&path, &yaml).await.err().unwrap();
        assert!(
            error.contains(&path.display().to_string()) && error.contains("a folder that exists"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_file_serves_one_gateway() {
    let backend = Backend::always(chat_answer(100, 200)).await;
    let folder = Folder::new("held");
    let yaml = tenant(backend.address);
    let gateway = begin(&folder.data(), &yaml).await.unwrap();
    let error = begin(&folder.data(), &yaml).await.err().unwrap();
    assert!(error.contains("another process has it open"), "{error}");
    assert_eq!(ask(&gateway, "a").await, 200);
    gateway.idle().await;
    // The command says the same with the exit code of a failure, and asks the gateway where it knows one.
    let data = folder.data().display().to_string();
    let refused = fairlane(&["usage", "--data", &data]);
    assert_eq!(refused.0, 1);
    assert!(refused.2.contains("another process has it open"), "{}", refused.2);
    let export = fairlane(&["data", "export", &folder.file("x").display().to_string(), "--data", &data]);
    assert_eq!(export.0, 1, "{}", export.2);
    let admin = gateway.running.admin.unwrap().to_string();
    let asked = || fairlane(&["usage", "--data", &data, "--admin", &admin, "--by", "tenant", "--csv"]);
    let expected = "tenant,requests,refused,input,cached,cache_write,output,charged\nt,1,0,100,0,0,200,300\n";
    until("the record is written down", || asked().1 == expected).await;
    assert_eq!(asked().0, 0);
    end(gateway).await;
    let read = fairlane(&["usage", "--data", &data, "--csv"]);
    assert_eq!((read.0, read.1.as_str()), (0, expected), "{}", read.2);
    assert_eq!(fairlane(&["usage", "--by", "tenant"]).0, 2, "neither file nor gateway is named");
    assert_eq!(fairlane(&["usage", "--data", &data, "--last", "soon"]).0, 1);
}

#[tokio::test]
async fn the_file_is_named_relative_to_the_configuration_and_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("relative");
    let config = folder.file("gateway.yaml");
    let yaml = format!(
        "listen: 127.0.0.1:0\nadmin: off\ndata: kept.redb\n{}tenants: [{{name: t, keys: [\"{KEY}\"]}}]\n",
        pool(&["127.0.0.1:9".parse().unwrap()], "")
    );
    std::fs::write(&config, yaml).unwrap();
    let origin = fairlane::serve::Origin::File(config.clone());
    let running = fairlane::serve::start(origin, fairlane::serve::Overrides::default()).await.unwrap();
    running.stop().await;
    let mode = folder.file("kept.redb").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let config = config.display().to_string();
    let printed = fairlane(&["usage", "--config", &config, "--json"]);
    assert_eq!(printed.0, 0, "{}", printed.2);
    assert!(printed.1.contains("\"rows\": []"), "{}", printed.1);
    let checked = fairlane(&["check", "config", &config]);
    assert!(checked.1.contains("kept.redb"), "{}", checked.1);
}

/// Runs the program: exit code, what it printed, and what it complained of.
fn fairlane(args: &[&str]) -> (i32, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_fairlane")).args(args).env("NO_COLOR", "1").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code().unwrap_or(-1), text(&done.stdout), text(&done.stderr))
}
