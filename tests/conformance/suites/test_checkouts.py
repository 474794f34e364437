"""Reports of other people's suites, as they write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.suites.checkouts import _of_report, go_names, junit, of_go

JUNIT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="test.integration.test_admin" name="test_one[a.b]"/>
<testcase classname="tests.test_share.TestShare" name="test_two"><skipped message="no"/></testcase>
<testcase classname="tests.test_share.TestShare" name="test_three"><failure message="a
 b">long</failure></testcase>
<testcase classname="tests.test_share" name="test_four"/>
<testcase classname="tests.test_share" name="test_four"><error message="at teardown"/></testcase>
</testsuite></testsuites>"""

GO = """=== RUN   TestOne
    client_test.go:7: words
--- PASS: TestOne (0.10s)
    --- FAIL: TestOne/part (0.00s)
=== RUN   TestTwo
--- FAIL: TestTwo (3.00s)
--- SKIP: TestThree (0.00s)
FAIL
"""


def test_reports_of_pytest() -> None:
    assert junit(JUNIT) == {
        "test/integration/test_admin.py::test_one[a.b]": "passed",
        "tests/test_share.py::TestShare::test_two": "skipped",
        "tests/test_share.py::TestShare::test_three": "failed: a b",
        "tests/test_share.py::test_four": "failed: at teardown",
    }


# Its second test panics, so the third is without a verdict.
PANICS = f"""#!/bin/sh
case "$*" in
*TestTwo*) printf '=== RUN   TestThree\\n--- SKIP: TestThree (0.00s)\\nPASS\\n' ;;
*) printf '%s' '{GO}' | sed '/TestThree/d; /^FAIL/d' ; echo 'panic: words' >&2 ; exit 2 ;;
esac
"""


@pytest.mark.parametrize("words", [f"#!/bin/sh\nprintf '%s' '{GO}'\n", PANICS])
def test_reports_of_go(words: str, tmp_path: Path) -> None:
    program = tmp_path / "suite.test"
    program.write_text(words)
    program.chmod(0o755)
    assert of_go(program, tmp_path, (), (), {}) == {
        "TestOne": "passed",
        "TestTwo": f"failed: see {tmp_path / 'go.log'}",
        "TestThree": "skipped",
    }
    assert "client_test.go:7: words" in (tmp_path / "go.log").read_text()


def test_go_runs_the_named_tests_and_no_other() -> None:
    assert go_names(["TestOne", "TestTwo"], ".") == "^(TestOne|TestTwo)$"
    assert go_names([], ".") == "."


def test_reports_of_librdkafka(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert _of_report(report, "0001")["0001"].startswith("failed")
    tests = {"0001_multiobj": {"state": "PASSED"}, "0002_unkpart": {"state": "FAILED"}}
    report.write_text(json.dumps({"tests": tests}).replace("}}", "},}"))
    assert _of_report(report, "0001") == {"0001_multiobj": "passed"}
    assert _of_report(report, "0002") == {"0002_unkpart": "failed: FAILED"}
