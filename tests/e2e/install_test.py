#!/usr/bin/env python3
"""usage: install_test.py CMAKE BUILD: installing, upgrading and uninstalling, as docs/installing.md says.

Works on a copy of the build folder's install rules that has the program and nothing else, which is
what tools/quickstart leaves, and, where the plugin was built, on one that has it too.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
PLUGIN = pathlib.PurePath("lib/passel/libpassel_cuda.so")


class Install(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="passel-install-")
        self.addCleanup(scratch.cleanup)
        self.build = pathlib.Path(scratch.name).resolve() / "build"
        self.prefix = self.build.parent / "prefix"
        (self.build / "bin").mkdir(parents=True)
        shutil.copy2(BUILD / "bin/passel", self.build / "bin")
        shutil.copytree(BUILD / "manual", self.build / "manual")
        for rules in BUILD.rglob("cmake_install.cmake"):
            copy = self.build / rules.relative_to(BUILD)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(rules.read_text().replace(str(BUILD), str(self.build)))

    def install(self):
        done = subprocess.run([CMAKE, "--install", self.build, "--prefix", self.prefix], text=True,
                              capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def installed(self):
        return sorted(str(path.relative_to(self.prefix))
                      for path in self.prefix.rglob("*") if not path.is_dir())

    def run_installed(self, *arguments):
        environment = {name: value for name, value in os.environ.items()
                       if name != "PASSEL_BACKEND_PATH"}
        environment["XDG_RUNTIME_DIR"] = str(self.build)
        done = subprocess.run([self.prefix / "bin/passel", *arguments], text=True, cwd="/",
                              capture_output=True, timeout=60, check=False, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def uninstall(self):
        """The command of the page, in the folder that it is for."""
        page = (pathlib.Path(__file__).parents[2] / "docs/installing.md").read_text()
        command = next(line for line in page.splitlines() if "install_manifest.txt" in line
                       and line.startswith("xargs"))
        root = self.build.parent / "clone"
        (root / "build").mkdir(parents=True)
        (root / "build/release").symlink_to(self.build)
        subprocess.run(command, shell=True, cwd=root, timeout=60, check=True)
        self.assertEqual(self.installed(), [])

    def test_the_program_alone_is_installed_runs_and_goes_away(self):
        self.install()
        self.assertEqual(self.installed(), [
            "bin/passel", "share/bash-completion/completions/passel", "share/doc/passel/LICENSE",
            "share/doc/passel/README.md", "share/man/man1/passel.1",
            *(f"share/passel/page/{name}.py" for name in ("document", "plots", "run_page", "run_report"))])
        # In its own prefix, wherever it was called from.
        self.assertIn(f"there is no GPU plugin {self.prefix / PLUGIN}:", self.run_installed("topology"))
        self.run_installed("train", "--fake_data", "--train_steps=20", "--workers=1", "--device=cpu")
        # All that it imports is installed: 0, or 3 where this Python has no matplotlib.
        page = subprocess.run([sys.executable, "-B", self.prefix / "share/passel/page/run_page.py",
                               "--check"], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn(page.returncode, (0, 3), page.stderr)
        # Over a program that runs: who runs keeps the old one.
        running = subprocess.Popen([self.prefix / "bin/passel", "train", "--fake_data", "--ps=0",
                                    "--workers=1", "--train_steps=1000000000", "--device=cpu"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.install()
            self.assertIsNone(running.poll())
        finally:
            running.kill()
            running.wait()
        self.uninstall()

    def test_a_plugin_that_was_built_is_installed_and_found(self):
        if not (BUILD / PLUGIN).exists():
            self.skipTest(f"this build has no {PLUGIN}")
        (self.build / PLUGIN).parent.mkdir(parents=True)
        shutil.copy2(BUILD / PLUGIN, self.build / PLUGIN)
        self.install()
        self.assertIn(str(PLUGIN), self.installed())
        self.assertIn(f"GPU plugin: {self.prefix / PLUGIN}\n", self.run_installed("topology"))
        self.uninstall()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
