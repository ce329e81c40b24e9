"""Tests of ``migrator.cli.grants``."""

from __future__ import annotations

import re

from tests.unit.cli.conftest import Program


def test_permissions_may_be_asked_for_before_there_is_a_user(program: Program) -> None:
    """Nothing is connected to; else they are for the user of the address, without a password."""
    document = program("db", "grants", "--broker", "--user", "u", "--vhost", "v", "--json").document
    assert document["schema"] == "migrator/db-grants-broker/1"
    assert (document["user"], document["vhost"]) == ("u", "v")
    assert set(document) == {"schema", "user", "vhost", "configure", "write", "read"}
    ended = program("--broker-url", "amqp://mig:swordfish@host/prod", "db", "grants", "--broker")
    assert "rabbitmqctl set_permissions -p prod mig " in ended.out
    assert "swordfish" not in ended.out
    for wrong in ([], ["--user", "u", "--vhost", "v"]):
        assert "or --broker" in program("db", "grants", *wrong, codes=[2]).err


def test_permissions_are_no_wider_than_asked_for(program: Program) -> None:
    """Named destinations, and the delays only on demand."""
    narrow = program("db", "grants", "--broker", "--destination", "Sales", "--json").document
    assert narrow["write"] != ".*"
    assert "Sales" in narrow["write"]
    wide = program("db", "grants", "--broker", "--create-delays", "--json").document
    assert "delay" in wide["configure"]
    assert "delay" not in narrow["configure"]


def test_permissions_follow_the_version_of_the_broker(program: Program) -> None:
    """By default they do for the newest; where less is asked for, less is printed."""
    asked = ("db", "grants", "--broker", "--destination", "Sales")
    newest = program(*asked, "--json").document["write"]
    assert re.match(newest, "TimeoutMigrationTool_Staging")
    old = program(*asked, "--rabbitmq", "3.10", "--json").document["write"]
    assert not re.match(old, "TimeoutMigrationTool_Staging")
    assert "4.3.0: whether" in program(*asked, "--rabbitmq", "4.3.0").out
    assert "such as 3.10" in program(*asked, "--rabbitmq", "new", codes=[2]).err
    assert "there are decommission" in program(*asked, "--for", "read", codes=[2]).err


def test_permissions_follow_the_modes_of_endpoints(program: Program) -> None:
    """Satellites are named after the input queue; endpoints that are migrated have none."""
    (program.folder / "migrator.toml").write_text(
        '[[endpoints]]\nname = "Sales"\nmode = "dispatch"\nqueue = "In"\n'
        '[[endpoints]]\nname = "Billing"\n'
    )
    document = program("db", "grants", "--broker", "--destination", "Stock", "--json").document
    assert re.match(document["read"], "In.Timeouts")
    assert re.match(document["read"], "In.TimeoutsDispatcher")
    assert not re.match(document["read"], "Billing.Timeouts")
    assert re.match(document["write"], "amq.default")
    (program.folder / "migrator.toml").write_text('[handover]\nnear_due = "dispatch"\n')
    document = program("db", "grants", "--broker", "--destination", "Stock", "--json").document
    assert re.match(document["write"], "amq.default")


def test_permissions_of_a_verb_come_beside_those_of_run(program: Program) -> None:
    """Decommission those that are named, or all in the settings; moving reads both generations."""
    asked = ("db", "grants", "--broker", "--destination", "Stock", "--rabbitmq", "3.10")
    for_it = (*asked, "--for", "decommission")
    assert "no endpoint given" in program(*for_it, codes=[2]).err
    (program.folder / "migrator.toml").write_text(
        '[[endpoints]]\nname = "Sales"\n[[endpoints]]\nname = "Billing"\n'
    )
    for more, of_billing in (((), True), (("--endpoint", "Sales"), False)):
        found = program(*for_it, *more, "--json").document
        for right in ("configure", "write", "read"):
            assert re.match(found[right], "Sales.TimeoutsDispatcher")
            assert bool(re.match(found[right], "Billing.Timeouts")) == of_billing
    levels = ("nsb.delay-level-03", "nsb.v2.delay-level-03")
    for verb in ("delays-migrate", "delays-transfer", "delays-delete"):
        found = program(*asked, "--for", verb, "--json").document
        moves = verb != "delays-delete"
        assert [bool(re.match(found["read"], each)) for each in levels] == [moves, True]
        assert bool(re.match(found["write"], "amq.default")) == moves
        assert bool(re.match(found["configure"], levels[1])) != moves
