"""The console in a real browser: login, every page at two widths and in two themes, keyboard, and hostile contents."""

import json
import re

import httpx
import pytest
from browser import BrowserPage, needs_browser, open_browser
from console_client import ConsoleClient
from live_platform import QuickPlatform
from npm_modules import MODULES

pytestmark = needs_browser

GREET = "def main(args):\n    print('hello')\n    return {'greeting': 'Hello, ' + args.get('name', 'you')}\n"
MARKUP = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>\u202e"
HOSTILE = f"def main(args):\n    print({MARKUP!r})\n    return {{'error': {MARKUP!r}}}\n"
PAGES = {
    "#/overview": "Overview",
    "#/activations": "Activations",
    "#/functions": "Functions",
    "#/function/greet?namespace=guest": "greet",
    "#/flows": "Flows",
    "#/decisions": "Decisions",
    "#/workflows": "Workflows",
    "#/data": "Datasets and models",
    "#/forecasts": "Forecasts and holds",
    "#/whatif": "What if",
    "#/nodes": "Nodes",
    "#/settings": "Settings",
    "#/start": "First steps",
}
WEB = [{"key": "web-export", "value": True}]
CALLS_OF_GREET = """before => {
  const row = [...document.querySelectorAll("tr")].find(row => row.innerText.startsWith("greet"));
  return Number(row.cells[4].innerText) > before;
}"""
AXE = MODULES / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("pages")) as platform:
        platform.deploy("greet", GREET)
        platform.deploy("hostile", HOSTILE)
        for name in ("greet", "greet", "hostile"):
            platform.aliquot("invoke", name, code=1 if name == "hostile" else 0)
        yield platform


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


def facts(platform):
    return json.loads((platform.data / "local.json").read_text())


def logged_in(platform, browser, *, tenant=True, **look):
    """Open the console as `aliquot console` does."""
    shown = BrowserPage(browser, **look)
    shown.page.goto(platform.aliquot("console", "--no-browser", *(["--tenant"] if tenant else [])).strip())
    shown.page.wait_for_selector("h1:text('Overview')")
    return shown


def go(shown, hash_, heading):
    shown.page.evaluate("hash => { location.hash = hash }", hash_)
    shown.page.wait_for_selector(f"h1:text('{heading}')")


def test_a_key_is_typed_and_a_wrong_one_is_told(platform, browser):
    with BrowserPage(browser) as shown:
        page = shown.page
        page.goto(facts(platform)["console"])
        page.get_by_label("The key of a namespace").fill("00000000-0000-0000-0000-000000000000:wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("[role=alert]:text('this key is not known')")
        page.get_by_label("The key of a namespace").fill(facts(platform)["key"])
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("h1:text('Overview')")
        page.reload()
        page.wait_for_selector("h1:text('Overview')")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_selector("h1:text('Log in')")
        assert not shown.complaints


def test_the_waterfall_of_a_call(platform, browser):
    with logged_in(platform, browser) as shown:
        go(shown, "#/activations", "Activations")
        shown.page.locator("tr", has_text="greet").locator("a[data-row]").first.click()
        shown.page.wait_for_selector("caption:text('Where it was, and why')")
        content = shown.page.inner_text("main")
        assert re.search(r"ran\s+\S+ m?s", content)
        assert "placed on cpu in sandbox" in content
        assert '"greeting": "Hello, you"' in content
        assert "stdout: hello" in content
        assert not shown.complaints


def test_a_function_is_called_from_its_form(platform, browser):
    with logged_in(platform, browser) as shown:
        go(shown, "#/functions", "Functions")
        shown.page.locator("tr", has_text="greet").get_by_role("button", name="Call").click()
        shown.page.get_by_label("Arguments, as JSON").fill("not JSON")
        shown.page.locator("form button.main").click()
        shown.page.wait_for_selector("text=This is not JSON")
        shown.page.get_by_label("Arguments, as JSON").fill('{"name": "Ann"}')
        shown.page.locator("form button.main").click()
        shown.page.wait_for_selector("pre:text('Hello, Ann')")
        shown.page.get_by_role("link", name="Its call").click()
        shown.page.wait_for_selector("caption:text('Where it was, and why')")
        assert not shown.complaints


def test_new_calls_appear_by_themselves(platform, browser):
    with logged_in(platform, browser) as shown:
        go(shown, "#/activations", "Activations")
        shown.page.wait_for_selector("a[data-row]")
        before = shown.page.locator("a[data-row]").count()
        platform.aliquot("invoke", "greet")
        shown.page.wait_for_function("count => document.querySelectorAll('a[data-row]').length > count", arg=before)
        go(shown, "#/activations?status=failed", "Activations")
        shown.page.wait_for_function("() => !document.querySelector('tbody').innerText.includes('greet')")
        assert "hostile" in shown.page.inner_text("tbody")


def test_the_overview_is_renewed_by_its_stream(platform, browser):
    with logged_in(platform, browser) as shown:
        row = shown.page.locator("table", has_text="The busiest").locator("tr", has_text="greet")
        before = int(row.locator("td").nth(4).inner_text())
        platform.aliquot("invoke", "greet")
        shown.page.wait_for_function(CALLS_OF_GREET, arg=before)
        shown.page.wait_for_selector("figure.device svg rect.slice")
        shown.page.locator("figure.device summary").first.click()
        assert "greet" in shown.page.locator("figure.device table").first.inner_text()
        assert not shown.complaints


def test_markup_in_results_and_output_is_text(platform, browser):
    with logged_in(platform, browser) as shown:
        go(shown, "#/activations?name=hostile", "Activations")
        shown.page.locator("a[data-row]").first.click()
        shown.page.wait_for_selector("caption:text('Where it was, and why')")
        assert "<script>" in shown.page.inner_text("main")
        assert "\\u202e" in shown.page.inner_text("main")
        assert "hacked" not in shown.page.title()
        assert not shown.page.locator("main img, main script").count()
        go(shown, "#/activations?status=failed&error=script", "Activations")
        shown.page.wait_for_selector("tr.call")
        assert "<script>" in shown.page.locator("tr.call span.bad").first.get_attribute("title")
        assert "hacked" not in shown.page.title()
        assert not shown.complaints


def test_a_page_of_a_tenant_on_the_gateways_port_gets_nothing(platform, browser):
    """A web action is on the same host, so its page may send requests to the console with the user's cookie."""
    console = facts(platform)["console"]
    attack = f"""
        const seen = [];
        for (const [path, method] of [["session", "GET"], ["api/v1/observe/overview", "GET"], ["session", "POST"]]) {{
          try {{
            const answer = await fetch("{console}" + path, {{method, credentials: "include", mode: "cors"}});
            seen.push(answer.status);
          }} catch (error) {{ seen.push("blocked"); }}
          await fetch("{console}" + path, {{method, credentials: "include", mode: "no-cors"}}).catch(() => 0);
        }}
        document.title = "done " + seen.join();
    """
    page = f"<!doctype html><script type=module>{attack}</script>"
    code = f"def main(args):\n    return {{'headers': {{'content-type': 'text/html'}}, 'body': {page!r}}}\n"
    platform.deploy("page", code, annotations=[{"key": "web-export", "value": True}])
    with logged_in(platform, browser) as shown:
        other = shown.context.new_page()
        other.goto(f"{facts(platform)['url']}/api/v1/web/guest/default/page.http")
        other.wait_for_function("() => document.title.startsWith('done')")
        assert other.title() == "done blocked,blocked,blocked"
        shown.page.reload()
        shown.page.wait_for_selector("h1:text('Overview')")  # the session is as before


def test_a_page_on_the_gateways_port_cannot_put_the_user_into_another_session(platform, browser):
    """Cookies ignore ports: a web action of a tenant adds the cookie of its own session to the user's browser."""
    theirs = ConsoleClient(facts(platform)["console"])
    assert theirs.log_in(key=platform.create_namespace("visitor")).status == 200
    planted = [f"document.cookie = {theirs.cookie + '; path=' + path!r};" for path in ("/", "/console", "/console/api")]
    page = f"<!doctype html><script>{' '.join(planted)} document.title = 'done'</script>"
    cookies = [
        f"{theirs.cookie}; Path=/console",
        f"={theirs.cookie}; Path=/",
        "aliquot_console=; Path=/console; Max-Age=0",
    ]
    result = {"headers": {"content-type": "text/html", "set-cookie": [*cookies, "own=1"]}, "body": page}
    platform.deploy(
        "plant", f"def main(args):\n    return {result!r}\n", annotations=[{"key": "web-export", "value": True}]
    )
    url = f"{facts(platform)['url']}/api/v1/web/guest/default/plant.http"
    assert httpx.get(url).headers.get_list("set-cookie") == ["own=1"]

    def visit(shown):
        other = shown.context.new_page()
        other.goto(url)
        other.wait_for_function("() => document.title === 'done'")
        assert "aliquot_console=" in other.evaluate("document.cookie"), "the attack works so far"
        other.close()

    with logged_in(platform, browser, tenant=False) as shown:
        visit(shown)
        shown.page.reload()
        shown.page.wait_for_selector("text=operator, namespace")
        assert shown.page.locator("text=visitor").count() == 1, "only in the operator's list of namespaces"
    with BrowserPage(browser) as fresh:
        visit(fresh)
        fresh.page.goto(facts(platform)["console"])
        fresh.page.wait_for_selector("h1:text('Log in')")


def test_a_link_with_a_code_of_somebody_elses_session_logs_nobody_in(platform, browser):
    code = platform.aliquot("console", "--no-browser", "--tenant").strip()
    page = f"<!doctype html><a id=bait href={code!r}>See my picture</a>"
    result = {"headers": {"content-type": "text/html"}, "body": page}
    platform.deploy("bait", f"def main(args):\n    return {result!r}\n", annotations=WEB)
    for before in (None, "operator"):
        with logged_in(platform, browser, tenant=False) if before else BrowserPage(browser) as shown:
            shown.page.goto(f"{facts(platform)['url']}/api/v1/web/guest/default/bait.http")
            shown.page.click("#bait")
            shown.page.wait_for_selector("text=Another page led here, so its code is not used.")
            shown.page.wait_for_selector("text=operator, namespace" if before else "h1:text('Log in')")
    with BrowserPage(browser) as shown:  # the code is still good for its owner, who types it
        shown.page.goto(code)
        shown.page.wait_for_selector("h1:text('Overview')")


def test_keys_walk_through_a_list_that_is_longer_than_the_window(platform, browser):
    with platform.client() as client:
        for _ in range(60):
            client.call("greet", {})
    with logged_in(platform, browser) as shown:
        go(shown, "#/activations", "Activations")
        shown.page.wait_for_function("() => document.querySelectorAll('a[data-row]').length > 40")
        seen = []
        for _ in range(55):
            shown.page.keyboard.press("j")
            shown.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            seen.append(shown.page.evaluate("document.activeElement.getAttribute('href')"))
        assert None not in seen
        assert len(set(seen)) == 55
        shown.page.keyboard.press("k")
        assert shown.page.evaluate("document.activeElement.getAttribute('href')") == seen[-2]
        shown.page.keyboard.press("Enter")
        shown.page.wait_for_selector("h1:text('greet')")


def test_the_namespace_is_chosen_with_keys(platform, browser):
    platform.create_namespace("visitors")
    with logged_in(platform, browser, tenant=False) as shown:
        shown.page.get_by_label("Namespace").focus()
        shown.page.keyboard.press("ArrowDown")
        shown.page.wait_for_function("() => document.querySelector('.who select').selectedIndex === 1")
        assert shown.page.evaluate("document.activeElement.tagName") == "SELECT"
        shown.page.keyboard.press("ArrowUp")
        shown.page.wait_for_function("() => document.querySelector('.who select').selectedIndex === 0")


def test_the_keyboard_alone_leads_to_a_call(platform, browser):
    with logged_in(platform, browser) as shown:
        page = shown.page
        page.get_by_role("link", name="Activations").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("a[data-row]")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.type") == "search"
        page.keyboard.press("Escape")
        for key in "jjk":
            page.keyboard.press(key)
        page.keyboard.press("Enter")
        page.wait_for_selector("caption:text('Where it was, and why')")


def test_a_restarted_server_is_found_again(tmp_path, browser):
    with QuickPlatform(tmp_path) as platform:
        key = platform.create_namespace("stayer")
        port = facts(platform)["console"].split(":")[2].split("/")[0]
        with BrowserPage(browser) as shown:
            shown.page.goto(facts(platform)["console"])
            shown.page.get_by_label("The key of a namespace").fill(key)
            shown.page.keyboard.press("Enter")
            shown.page.wait_for_selector("h1:text('Overview')")
            platform.stop()
            shown.page.wait_for_selector("#live:not(:empty)")
            platform._options = ("--console-port", port)
            platform.start()
            shown.page.wait_for_selector("#live:empty", state="attached")


def test_an_execution_of_a_workflow_is_drawn(platform, browser):
    definition = {"StartAt": "Greet", "States": {"Greet": {"Type": "Task", "Resource": "greet", "End": True}}}
    platform.deploy("polite", json.dumps(definition), kind="workflow")
    platform.aliquot("workflow", "run", "polite")
    for tenant in (True, False):
        with logged_in(platform, browser, tenant=tenant) as shown:
            go(shown, "#/workflows", "Workflows")
            shown.page.locator("a[data-row]").first.click()
            shown.page.wait_for_selector("caption:text('History')")
            shown.page.wait_for_function("() => document.querySelector('img.graph')?.naturalWidth > 50")
            assert "Hello, you" in shown.page.inner_text("main")
            assert "ExecutionSucceeded" in shown.page.inner_text("main")
            assert violations(shown) == []
            assert not shown.complaints


def test_the_operator_asks_what_another_policy_would_have_done(platform, browser):
    with logged_in(platform, browser, tenant=False) as shown:
        shown.page.get_by_role("link", name="What if").click()
        shown.page.get_by_label("Calls of").select_option("600")
        shown.page.get_by_role("button", name="Simulate").click()
        shown.page.wait_for_selector("td:text('measured')", timeout=60_000)
        assert re.search(r"fcfs\s+\S+ m?s", shown.page.inner_text("main"))
        assert "Simulating the policy that ran gives mean" in shown.page.inner_text("main")
        assert not shown.complaints


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: npm is needed to check for accessibility")
@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        ("wide", "light"),
        ("narrow", "dark"),
        pytest.param("wide", "dark", marks=pytest.mark.long),
        pytest.param("narrow", "light", marks=pytest.mark.long),
    ],
)
def test_every_page_is_accessible(platform, browser, size, scheme):
    platform.aliquot("invoke", "greet")  # the newest call, which has phases; executions of workflows have none
    with logged_in(platform, browser, tenant=False, size=size, scheme=scheme) as shown:
        for hash_, heading in PAGES.items():
            go(shown, hash_, heading)
            shown.page.wait_for_selector("main :is(table, form, p.soft, pre):visible")
            assert violations(shown) == []
            overflows = shown.page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
            assert not overflows, f"{hash_} is wider than the window"
        go(shown, "#/activations", "Activations")
        shown.page.locator("tr", has_text="guest/greet").locator("a[data-row]").first.click()
        shown.page.wait_for_selector("caption:text('Where it was, and why')")
        assert violations(shown) == []
        assert not shown.complaints
        shown.page.get_by_role("button", name="Log out").click()
        shown.page.wait_for_selector("h1:text('Log in')")
        assert violations(shown) == []


def violations(shown):
    """Return what axe finds wrong. It runs in a world of its own, because the page allows no other scripts."""
    client = shown.context.new_cdp_session(shown.page)
    frame = client.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
    world = client.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "axe"})["executionContextId"]
    script = AXE.read_text(encoding="utf-8") + ";axe.run(document).then(found => JSON.stringify(found.violations.map("
    script += "one => [one.id, one.nodes.map(node => node.html).slice(0, 3)])))"
    asked = {"expression": script, "contextId": world, "awaitPromise": True, "returnByValue": True}
    answer = client.send("Runtime.evaluate", asked)
    client.detach()
    return json.loads(answer["result"]["value"])
