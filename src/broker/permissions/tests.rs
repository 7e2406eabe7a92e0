//! Rules as Mosquitto takes them, and what the names of other protocols add.

use super::*;

const RULES: &str = "\
# of clients without a user
topic read news/#
topic read $SYS/#

user ann
topic readwrite home/#
topic deny home/safe
topic write with space/x
topic read persistent://public/default/orders
topic write tubemq:orders

user root
superuser
user ann
topic read later

pattern write devices/%c/state
pattern read inbox/%u
pattern read shared/+
pattern deny shared/closed
pattern read persistent://public/%u/#
";

fn ask(rules: &str, user: Option<&str>, access: Access, topic: &str) -> bool {
    let permissions = Permissions::parse(rules).unwrap();
    let (domain, topic) = match topic.split_once("://") {
        _ if topic.starts_with("tubemq:") => (Domain::TubeMq, &topic["tubemq:".len()..]),
        Some(_) => (Domain::Pulsar, topic),
        None => (Domain::Mqtt, topic),
    };
    permissions.permits(domain, Client { user, id: Some("d7") }, access, topic)
}

#[test]
fn a_role_gives_its_rules_to_its_members_wherever_it_stands_in_the_file() {
    let rules = "\
user ann
member kitchen
member kitchen
topic deny kitchen/safe
user bob
member kitchen
member office
role kitchen
topic readwrite kitchen/#
subscription meals
role office
topic read office/#
topic deny kitchen/oven
role root
superuser
user carol
member root
role kitchen
topic read tubemq:menu
";
    for (user, access, topic, may) in [
        ("ann", Access::Write, "kitchen/light", true),
        ("ann", Access::Write, "kitchen/oven", true),
        ("ann", Access::Write, "kitchen/safe", false),
        ("ann", Access::Read, "office/door", false),
        ("ann", Access::Read, "tubemq:menu", true),
        ("bob", Access::Write, "kitchen/light", true),
        ("bob", Access::Write, "kitchen/safe", true),
        // Denied by one role, and allowed by another.
        ("bob", Access::Write, "kitchen/oven", false),
        ("bob", Access::Read, "office/door", true),
        ("bob", Access::Write, "office/door", false),
        ("carol", Access::Write, "any", true),
        // A role is no user.
        ("kitchen", Access::Write, "kitchen/light", false),
    ] {
        assert_eq!(ask(rules, Some(user), access, topic), may, "{user} {access:?} {topic}");
    }
    let permissions = Permissions::parse(rules).unwrap();
    assert!(permissions.shares(Domain::Pulsar, Some("ann"), "meals"));
    assert!(!permissions.shares(Domain::Pulsar, Some("dan"), "meals"));
    assert!(permissions.is_superuser(Some("carol")) && !permissions.is_superuser(Some("bob")));
    let some = |user, filter| {
        let client = Client { user: Some(user), id: None };
        permissions.permits_some(Domain::Mqtt, client, Access::Read, filter, &mut 100)
    };
    assert!(some("ann", "kitchen/+") && some("bob", "office/#") && some("carol", "any/#"));
    assert!(!some("ann", "office/#") && !some("bob", "kitchen/oven"));
}

#[test]
fn lines_that_mean_nothing_in_a_role_are_refused_there() {
    for (line, why) in
        [("pattern read a", "a pattern is for everybody"), ("member other", "a role has no roles")]
    {
        let error = Permissions::parse(&format!("role one\n{line}\n")).unwrap_err();
        assert!(
            error.message().starts_with("acl_file, line 2: ") && error.message().contains(why),
            "{error}"
        );
    }
}

#[test]
fn subscriptions_of_other_users_are_named_in_the_rules_of_a_user() {
    let text = "subscription free\nuser ann\nsubscription billing\nsubscription tubemq:till-*\nuser root\nsuperuser\n";
    let permissions = Permissions::parse(text).unwrap();
    assert_eq!(permissions.len(), 4);
    for (user, domain, name, may) in [
        (Some("ann"), Domain::Pulsar, "billing", true),
        (Some("ann"), Domain::Pulsar, "billing-2", false),
        (Some("ann"), Domain::TubeMq, "billing", false),
        (Some("ann"), Domain::TubeMq, "till-7", true),
        (Some("ann"), Domain::TubeMq, "till-", true),
        (Some("ann"), Domain::TubeMq, "till", false),
        (Some("ann"), Domain::Pulsar, "till-7", false),
        (Some("ann"), Domain::Pulsar, "free", false),
        (Some("bob"), Domain::Pulsar, "billing", false),
        (Some("root"), Domain::Pulsar, "billing", true),
        (Some("root"), Domain::TubeMq, "any", true),
        (None, Domain::Pulsar, "free", true),
        (None, Domain::Pulsar, "billing", false),
    ] {
        assert_eq!(permissions.shares(domain, user, name), may, "{user:?} {name}");
    }
}

#[test]
fn what_no_rule_allows_is_refused() {
    use Access::{Read, Write};
    for (user, access, topic, allowed) in [
        (None, Read, "news/today", true),
        (None, Read, "news", true),
        (None, Write, "news/today", false),
        (None, Read, "home/x", false),
        (None, Read, "$SYS/broker/uptime", true),
        (Some("ann"), Read, "$SYS/broker/uptime", false),
        (Some("ann"), Read, "news/today", false),
        (Some("ann"), Write, "home/x", true),
        (Some("ann"), Read, "home/safe", false),
        (Some("ann"), Write, "home/safe", false),
        (Some("ann"), Write, "with space/x", true),
        (Some("ann"), Read, "later", true),
        (Some("ann"), Read, "persistent://public/default/orders", true),
        (Some("ann"), Write, "persistent://public/default/orders", false),
        (Some("ann"), Read, "non-persistent://public/default/orders", false),
        (Some("ann"), Read, "persistent://public/ann/x", true),
        (Some("bob"), Read, "persistent://public/ann/x", false),
        (Some("ann"), Write, "tubemq:orders", true),
        (Some("ann"), Read, "tubemq:orders", false),
        (Some("ann"), Write, "devices/d7/state", true),
        (None, Write, "devices/d7/state", true),
        (None, Write, "devices/d8/state", false),
        (Some("ann"), Read, "inbox/ann", true),
        (None, Read, "inbox/", false),
        (Some("bob"), Read, "shared/open", true),
        (Some("bob"), Read, "shared/closed", false),
        (Some("root"), Write, "anything", true),
        (Some("root"), Write, "persistent://a/b/c", true),
        (Some("stranger"), Read, "news/today", false),
    ] {
        assert_eq!(ask(RULES, user, access, topic), allowed, "{user:?} {access:?} {topic}");
    }
}

#[test]
fn a_rule_of_the_user_comes_before_those_of_everybody() {
    let rules = "user ann\ntopic read a/b\npattern deny a/#\n";
    assert!(ask(rules, Some("ann"), Access::Read, "a/b"));
    assert!(!ask(rules, Some("ann"), Access::Read, "a/c"));
}

#[test]
fn wildcards_for_one_protocol_are_not_for_another() {
    let rules = "topic readwrite #\n";
    for (topic, allowed) in [("a/b", true), ("persistent://public/default/x", false), ("tubemq:x", false)] {
        assert_eq!(ask(rules, None, Access::Write, topic), allowed, "{topic}");
    }
    assert!(ask("topic tubemq:#\n", None, Access::Read, "tubemq:x"));
    assert!(ask("topic persistent://#\n", None, Access::Read, "persistent://public/default/x"));
}

#[test]
fn a_client_whose_name_is_a_wildcard_gets_nothing_from_patterns() {
    let permissions = Permissions::parse("pattern read dev/%u/#\npattern read all\n").unwrap();
    let permits = |user, topic| {
        let client = Client { user: Some(user), id: None };
        permissions.permits(Domain::Mqtt, client, Access::Read, topic)
    };
    assert!(permits("ann", "dev/ann/x") && permits("ann", "all"));
    for name in ["+", "#", "ann/x"] {
        assert!(!permits(name, "dev/ann/x") && !permits(name, "all"), "{name}");
    }
}

#[test]
fn a_file_without_rules_allows_nothing() {
    assert!(Permissions::parse("# nothing\n\n").unwrap().is_empty());
    assert!(!ask("", None, Access::Read, "a"));
}

#[test]
fn a_filter_is_refused_if_nothing_below_it_may_be_read() {
    let permissions = Permissions::parse(RULES).unwrap();
    let some = |user, filter, mut steps| {
        let client = Client { user, id: Some("d7") };
        permissions.permits_some(Domain::Mqtt, client, Access::Read, filter, &mut steps)
    };
    for (user, filter, allowed) in [
        (None, "#", true),
        (None, "+/today", true),
        (None, "$SYS/broker/+", true),
        (None, "home/#", false),
        (None, "devices/d7/state", false),
        (Some("ann"), "home/safe", false),
        (Some("ann"), "home/+", true),
        (Some("ann"), "inbox/+", true),
        (Some("ann"), "inbox/bob", false),
        (Some("bob"), "shared/closed", false),
        (Some("bob"), "home/#", false),
        (Some("root"), "home/#", true),
    ] {
        assert_eq!(some(user, filter, 100), allowed, "{user:?} {filter}");
    }
    assert!(some(None, "home/#", 0), "without time to look, the messages decide");
}

#[test]
fn a_mistake_is_named_with_its_line() {
    for (line, why) in [
        ("topic reed a", "\"reed\" is not one of read, write, readwrite, deny"),
        ("role", "a name is missing"),
        ("member", "the name of a role is missing"),
        ("member none", "there is no role \"none\""),
        ("topic", "the topic is missing"),
        ("topic read", "the topic is missing"),
        ("user", "a name is missing"),
        ("superuser ann", "\"ann\" behind superuser"),
        ("subscription", "the name of a subscription is missing"),
        ("subscription tubemq:", "the name of a subscription is missing"),
        ("usr ann", "\"usr\" is not one of user, role, member, topic, subscription, pattern, superuser"),
        ("topic read a/#/b", "# must be a whole level"),
        ("topic read $share/g/a", "name the topics of the shared subscription: \"a\""),
        ("topic read tubemq:a/b", "not the name of a TubeMQ topic"),
        ("topic read persistent://a/b/c/d", "persistent://tenant/namespace/topic"),
        ("pattern read persistent://public/%c/#", "use %u"),
    ] {
        let error = Permissions::parse(&format!("# first\ntopic a\n{line}\n")).unwrap_err();
        let text = error.message();
        assert!(text.starts_with("acl_file, line 3: ") && text.contains(why), "{line}: {text}");
    }
    let long = "a".repeat(1 << 17);
    for line in [
        format!("{long} b"),
        format!("topic {long} b"),
        format!("topic read {long}"),
        format!("topic read {long}/#/b"),
        format!("topic read persistent://{}", "a/".repeat(1 << 12)),
        format!("topic read tubemq:{}", "a/".repeat(1 << 6)),
        format!("user a\nmember {long}"),
        format!("superuser {long}"),
        format!("topic read $share/g/{}", "a".repeat(1 << 10)),
    ] {
        let error = Permissions::parse(&line).unwrap_err();
        assert!(error.message().len() < 250, "{error}");
    }
}

#[test]
fn a_file_may_begin_with_a_byte_order_mark_and_has_no_control_characters() {
    assert!(Permissions::parse("\u{feff}user ann\r\n\ttopic\tread a \n").unwrap().len() == 1);
    for (text, why) in [
        ("user ann\ntopic read a\0b\n", "acl_file, line 2: the control character \\u{0}"),
        ("user a\x1b[31mnn\n", "acl_file, line 1: the control character \\u{1b}"),
        ("# rules\ruser ann\rsuperuser\r", "acl_file, line 1: a carriage return without a line feed"),
    ] {
        let error = Permissions::parse(text).unwrap_err();
        assert!(error.message().starts_with(why), "{error}");
    }
}
