//! Every mistake in a file, with its line and column.

use super::*;

/// The first lines of all problems.
pub(super) fn problems(text: &str) -> Vec<String> {
    let first = |problem: &Problem| problem.to_string().lines().next().unwrap_or_default().to_owned();
    resolve(text).unwrap_err().problems.iter().map(first).collect()
}

#[test]
fn every_wrong_value_is_told_with_line_and_column() {
    let table = [
        (
            "tenants:\n  - name: a\n    limits: {tokns: 1/min}\n",
            "3:14: unknown key \"tokns\" in tenants[0].limits; did you mean \"tokens\"?",
        ),
        (
            "pools: [{name: a, models: [m], backends: [{url: \"http://h\", ca_file: ca.pem}]}]\n",
            "1:70: pools[0].backends[0].ca_file: the backend is spoken to without TLS",
        ),
        ("tenant: []\n", "1:1: unknown key \"tenant\"; did you mean \"tenants\"?"),
        ("zzz: 1\n", "1:1: unknown key \"zzz\"; known are listen, admin,"),
        (
            "tenants:\n  - name: a\n    limits: {tokens: 200000/mn}\n",
            "3:22: tenants[0].limits.tokens: \"200000/mn\" is not a rate: write it as 200000/min",
        ),
        ("service: {tokens: 200000}\n", "1:19: service.tokens: \"200000\" is not a rate"),
        ("service: {tokens: -1}\n", "1:19: service.tokens is a number, not a rate such as"),
        (
            "service: {tokens: {rate: 5/min, burts: 20s}}\n",
            "1:33: unknown key \"burts\" in service.tokens; did you mean \"burst\"?",
        ),
        (
            "service: {tokens: 4000000000/min burst 2m}\n",
            "1:19: service.tokens: the bucket (rate times burst) is above 4 billion",
        ),
        (
            "service: {tokens: {rate: 5/min, max_debt: 4000000001}}\n",
            "1:43: service.tokens.max_debt: \"4000000001\" is above 4 billion",
        ),
        ("service:\n  tokens: [1]\n", "2:11: service.tokens is a list, not a rate such as"),
        (
            "service: {max_output_tokens: 5}\n",
            "1:11: unknown key \"max_output_tokens\" in service; known are requests, tokens,",
        ),
        ("tenants:\n  - name: a\n    name: b\n", "3:5: \"name\" is written twice in tenants[0]"),
        ("tenants:\n  - team: a\n", "2:5: tenants[0] has no \"name\", which is required"),
        ("tenants: 5\n", "1:10: tenants is not a list"),
        ("- a\n", "1:1: the file is not a map of options"),
        (
            "tenants: [{name: a, charging: reserv}]\n",
            "1:31: tenants[0].charging: \"reserv\" is not known; did you mean \"reserve\"?",
        ),
        ("tenants: [{name: \"\"}]\n", "1:18: tenants[0].name: the name is empty"),
        ("classes: [{name: a, max_wait: 10}]\n", "1:31: classes[0].max_wait: \"10\" is not a span of time"),
        ("classes: [{name: a, min_share: 0.05}]\n", "1:32: classes[0].min_share: \"0.05\" is not a share"),
        (
            "classes: [{name: a, max_wait: }]\n",
            "1:21: classes[0].max_wait has no value: give it one or remove the key",
        ),
        ("service:\n  tokens:\n", "2:3: service.tokens has no value: give it one or remove the key"),
        ("lab: maybe\n", "1:6: lab is neither true nor false"),
        (
            "pools: [{name: a, models: m, backends: [x]}]\n",
            "1:27: pools[0].models: models is a list of names",
        ),
        ("classes: [\n", "1:10: not valid YAML: unclosed bracket"),
        ("listen: *nowhere\n", "1:9: not valid YAML"),
    ];
    for (text, expected) in table {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{text}");
        let expected = format!("gateway.yaml:{expected}");
        assert!(found[0].starts_with(&expected), "{text}\nfound    {}\nexpected {expected}", found[0]);
    }
}

#[test]
fn what_does_not_fit_together_is_told_with_line_and_column() {
    let table = [
        (
            "tenants: [{name: a}, {name: a}]\n",
            "1:29: tenants[1].name: the tenant \"a\" is defined already as tenants[0].name",
        ),
        ("teams: [{name: a}, {name: a}]\n", "1:27: teams[1].name: the team \"a\" is defined already"),
        ("classes: [{name: a}, {name: a}]\n", "1:29: classes[1].name: the class \"a\" is defined already"),
        (
            "pools: [{name: a, models: [m, m], backends: [\"http://h\"]}]\n",
            "1:31: pools[0].models[1]: the model \"m\" is served by the pool \"a\" already",
        ),
        (
            "pools: [{name: a, models: [m], backends: [\"http://h\", \"http://h\"]}]\n",
            "1:55: pools[0].backends[1]: the backend \"h:80\" is defined already",
        ),
        (
            "pools: [{name: a, models: [m], backends: []}]\n",
            "1:42: pools[0].backends: the pool has no backend",
        ),
        (
            "pools: [{name: a, models: [], backends: [\"http://h\"]}]\n",
            "1:27: pools[0].models: the pool serves no model",
        ),
        (
            "pools: [{name: a, models: [m], backends: [{url: host}]}]\n",
            "1:49: pools[0].backends[0].url: \"host\" is not a backend's address",
        ),
        (
            "pools: [{name: a, models: [m], backends: [{}]}]\n",
            "1:43: pools[0].backends[0]: the backend has neither url nor dns",
        ),
        (
            "pools: [{name: a, models: [m], backends: [\"http://h\"], slots: 0}]\n",
            "1:63: pools[0].slots: the value is outside its bound, 1 to 65,536",
        ),
        (
            "pools: [{name: a, models: [m], backends: [\"http://h\"], tokenizer: {vocabulary: nowhere.json}}]\n",
            "1:80: pools[0].tokenizer.vocabulary: there is no file",
        ),
        (
            "pools: [{name: a, models: [m], backends: [\"http://h\"], images: {rule: gpt-5, tokens: 9}}]\n",
            "1:86: pools[0].images.tokens: the rule has its own figures",
        ),
        (
            "pools: [{name: a, models: [m], backends: [\"http://h\"], passthrough: [{path: /v1/messages, cost: 1}]}]\n",
            "1:77: pools[0].passthrough[0].path: /v1/messages is charged by its tokens",
        ),
        (
            "tenants: [{name: a, team: shp}]\nteams: [{name: shop}]\n",
            "1:27: tenants[0].team: there is no team \"shp\"; did you mean \"shop\"?",
        ),
        (
            "tenants: [{name: a, class: fast}]\n",
            "1:28: tenants[0].class: there is no class \"fast\"; known are background, batch, interactive",
        ),
        (
            "tenants: [{name: a, tier: big}]\n",
            "1:27: tenants[0].tier: there is no tier \"big\", none is defined",
        ),
        ("tiers: {big: {class: fast}}\n", "1:22: tiers.big.class: there is no class \"fast\""),
        ("open_tenant: a\n", "1:14: open_tenant: there is no tenant \"a\", none is defined"),
        (
            "classes: [{name: a, min_share: 60%}, {name: b, min_share: 41%}]\n",
            "1:59: classes[1].min_share: the minimum shares of all classes are more than 100 %",
        ),
        (
            "classes: [{name: a, headroom: 100%}]\n",
            "1:31: classes[0].headroom: a headroom of 100 % leaves the class nothing",
        ),
        ("admin: 0.0.0.0:9090\n", "1:8: admin: off loopback the admin address needs an admin_token"),
        ("admin: localhost:8080\n", "1:8: admin: the admin address is that of the clients"),
        ("listen: everywhere\n", "1:9: listen: \"everywhere\" is not an address"),
        ("store: mysql://h\n", "1:8: store: the store is memory, or an address that begins with redis://"),
        ("bounds: {max_body: 5}\n", "1:20: bounds.max_body: the value is outside its bound, 1KiB to 1GiB"),
        ("timeouts: {connect: 1ms}\n", "1:21: timeouts.connect: the value is outside its bound, 10ms to 10m"),
        ("teams: [{name: a, weight: 0}]\n", "1:27: teams[0].weight: a weight is above 0"),
        (
            "tenants: [{name: a, keys: [\"env:UNSET_KEY\"]}]\n",
            "1:28: tenants[0].keys[0]: the environment variable UNSET_KEY is not set",
        ),
        (
            "tenants: [{name: a, keys: [{name: x}]}]\n",
            "1:28: tenants[0].keys[0]: the key has neither key nor digest",
        ),
        (
            "tenants: [{name: a, keys: [{key: \"env:A\", expires: soon}]}]\n",
            "1:52: tenants[0].keys[0].expires: \"soon\" is not a date",
        ),
        (
            "tenants: [{name: a, keys: [\"env:A\"]}, {name: b, keys: [\"env:A\"]}]\n",
            "1:56: tenants[1].keys[0]: the key is taken: tenant \"a\" has it already",
        ),
        (
            "tenants: [{name: a, keys: [\"env:A\", \"env:A\"]}]\n",
            "1:37: tenants[0].keys[1]: the key is taken: the same tenant has it already",
        ),
        (
            "tenants: [{name: a, keys: [{name: x, key: \"env:A\"}, {name: x, key: \"env:B\"}]}]\n",
            "1:53: tenants[0].keys[1]: the tenant has another key called \"x\"",
        ),
        (
            "tenants: [{name: a, limits: {cached_input_weight: 1.1}}]\n",
            "1:51: tenants[0].limits.cached_input_weight: a cached token weighs from 0 to 1",
        ),
        (
            "tenants: [{name: a, runs: {max_live: 0}}]\n",
            "1:38: tenants[0].runs.max_live: the value is outside its bound",
        ),
    ];
    for (text, expected) in table {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{text}\n{found:?}");
        let expected = format!("gateway.yaml:{expected}");
        assert!(found[0].starts_with(&expected), "{text}\nfound    {}\nexpected {expected}", found[0]);
    }
}

#[test]
fn secrets_are_hidden_in_errors() {
    let secret = "hunter2-hunter2-hunter2";
    let table = [
        format!("tenants:\n  - name: a\n    keys: {secret}\n"),
        format!("tenants: [{{name: a, keys: [{secret}, {{nam: x}}]}}]\n"),
        format!("tenants: [{{name: a, keys: [{{{secret}}}]}}]\n"),
        format!("tenants: [{{name: a, keys: [{{{secret}: 1}}]}}]\n"),
        format!("tenants: [{{name: a, keys: [{{key: {secret}, digest: {secret}}}]}}]\n"),
        format!("tenants: [{{name: a, keys: [{{digest: {secret}}}]}}]\n"),
        format!("tenants: [{{name: a, keys: [\"{secret} with blanks\"]}}]\n"),
        format!(
            "pools: [{{name: a, models: [m], backends: [{{url: \"http://h\", api_key: {secret}, slts: 5}}]}}]\n"
        ),
        format!("pools: [{{name: a, models: [m], backends: [{{url: \"http://u:{secret}@h\"}}]}}]\n"),
        format!("admin_token: {secret}\nadmin_token: {secret}\n"),
        format!("admin_token: [{secret}]\n"),
        format!("admin_token: \"{secret}\n"),
        format!("admin_tokn: {secret}\n"),
        format!("{{secret: {secret}}}\n"),
        format!("tenants: [{{name: a, keys: [{{kye: {secret}}}]}}]\n"),
        format!("pools: [{{name: a, models: [m], backends: [{{url: \"http://h\", api_ky: {secret}}}]}}]\n"),
        format!("tenants: [{{name: a, keys: [{secret}]\n"),
    ];
    for text in table {
        let error = resolve(&text).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{text}\n{error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{text}");
    }
}

#[test]
fn a_problem_shows_its_line_with_a_mark() {
    let error = resolve("tenants:\n  - name: a\n    limits: {tokns: 1/min}\n").unwrap_err();
    let expected = "gateway.yaml:3:14: unknown key \"tokns\" in tenants[0].limits; did you mean \"tokens\"?\n 3 |     limits: {tokns: 1/min}\n   |              ^";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn many_problems_are_told_at_once_and_no_more_than_a_bound() {
    let tenants: String = (0..100).map(|index| format!("  - {{name: t{index}, team: none}}\n")).collect();
    let error = resolve(&format!("tenants:\n{tenants}")).unwrap_err();
    assert_eq!(error.problems.len(), PROBLEMS_MAX);
}
