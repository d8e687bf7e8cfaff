#!/usr/bin/env python3
"""Tests of include_rules.py: each rule finds its violation in a small tree, and a sound tree passes."""
import pathlib
import tempfile
import unittest

import include_rules

HEADER = "// For tests.\n#pragma once\n"


class IncludeRules(unittest.TestCase):
    def found(self, files):
        """Violations in a tree of these files, as "path:line: fault"."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return [f"{path}:{line}: {fault}" for path, line, fault in include_rules.violations(folder)]

    def expect(self, files, *starts):
        found = self.found(files)
        self.assertEqual(len(found), len(starts), found)
        for fault, start in zip(found, starts):
            self.assertTrue(fault.startswith(start), fault)

    def test_a_sound_tree_passes(self):
        self.expect({
            "src/base/error.hpp": HEADER,
            "src/routing/a.cpp": '#include "routing/b.hpp"\n\n#include "base/error.hpp"\n\n#include <fmt/core.h>\n',
            "src/transport/mpi_transport.cpp": "#include <mpi.h>\n",
            "src/model/a.cpp": '#include "checkpoint/layout.hpp"\nauto name = "layers/000/shared/up";\n',
            "kernels/portable/a.cpp": '#include "base/error.hpp"\n#include <Kokkos_Core.hpp>\n',
            "kernels/cuda/a.cu": "#include <cuda_runtime.h>\n__global__ void f();\nint main() { f<<<1, 1>>>(); }\n",
            "tests/data/a.txt": "tab\t \n",
            "build/a.cpp": "\t\n",
        })

    def test_rooms_include_along_the_arrows_only(self):
        self.expect({"src/routing/a.cpp": '\n#include "transport/transport.hpp"\n'},
                    "src/routing/a.cpp:2: routing must not include transport/transport.hpp")
        self.expect({"src/placement/a.hpp": HEADER + '#include "mpi_launch/world.hpp"\n'},
                    "src/placement/a.hpp:3: placement must not include")
        self.expect({"src/model/a.cpp": '#include "checkpoint/checkpoint_reader.hpp"\n'},
                    "src/model/a.cpp:1: model must not include")
        self.expect({"kernels/a.cpp": '#include "model/family.hpp"\n'}, "kernels/a.cpp:1: kernels must not include")
        self.expect({"src/main.cpp": '#include "engine/engine.hpp"\n'}, "src/main.cpp:1: main.cpp must not include")
        self.expect({"src/attic/a.cpp": "\n"}, "src/attic/a.cpp:1: room attic is not in the table")

    def test_names_of_tests_have_no_square_brackets_and_semicolons(self):
        self.expect({"tests/base/a.cpp": 'TEST_CASE("x in (0, 1]") {}\nTEST_CASE("a; b") {}\nint a[2];\n'},
                    "tests/base/a.cpp:1: name of a test", "tests/base/a.cpp:2: name of a test")

    def test_libraries_stay_where_they_belong(self):
        self.expect({"src/transport/agree.cpp": "#include <mpi.h>\n"}, "src/transport/agree.cpp:1: MPI header")
        self.expect({"src/decoder/a.cpp": "#  include <mpi.h>\n"}, "src/decoder/a.cpp:1: MPI header")
        self.expect({"src/transport/mpi_transport.cpp": "#include <nccl.h>\n"},
                    "src/transport/mpi_transport.cpp:1: NCCL header")
        self.expect({"src/decoder/a.cpp": "#include <Kokkos_Core.hpp>\n"}, "src/decoder/a.cpp:1: Kokkos header")
        self.expect({"kernels/a.cpp": "#include <cublas_v2.h>\n"}, "kernels/a.cpp:1: CUDA header")

    def test_units_with_kokkos_keep_other_libraries_out_also_indirectly(self):
        self.expect({"kernels/a.cpp": "#include <Kokkos_Core.hpp>\n#include <fmt/core.h>\n"},
                    "kernels/a.cpp:1: includes Kokkos and <fmt/core.h>")
        self.expect({"src/base/json.hpp": HEADER + "#include <nlohmann/json_fwd.hpp>\n",
                     "src/base/file.hpp": HEADER + '#include "base/json.hpp"\n',
                     "kernels/a.cpp": '#include "base/file.hpp"\n#include <Kokkos_Core.hpp>\n'},
                    "kernels/a.cpp:1: includes Kokkos and <nlohmann/json_fwd.hpp>")

    def test_cuda_syntax_is_found_in_code_but_not_in_comments_and_strings(self):
        self.expect({"kernels/portable/a.cpp": "f<<<1, 2>>>();\n"}, "kernels/portable/a.cpp:1: CUDA syntax")
        self.expect({"src/base/a.hpp": HEADER + "__device__ void f();\n"}, "src/base/a.hpp:3: CUDA syntax")
        self.expect({"src/base/a.cpp": '// not <<<>>> code\nauto arrow = "<<<";\n'})

    def test_headers_open_with_a_comment_and_are_read_once(self):
        self.expect({"src/base/a.hpp": "// For tests.\n"}, "src/base/a.hpp:1: header without #pragma once")
        self.expect({"src/base/a.hpp": "#pragma once\n"}, "src/base/a.hpp:1: header does not open with a comment")

    def test_text_has_no_tabs_trailing_spaces_or_foreign_paths(self):
        self.expect({"docs/a.md": "a\tb\n"}, "docs/a.md:1: tab")
        self.expect({"src/base/a.cpp": "int a; \n"}, "src/base/a.cpp:1: space at the end")
        self.expect({"mpi_launch/a.sh": "cd /hom" + "e/someone\n"}, "mpi_launch/a.sh:1: path outside")
        self.expect({"CMakePresets.json": '"/wor' + 'k/build"\n'}, "CMakePresets.json:1: path outside")
        self.expect({".ci/run": "see share" + "d/notes\n"}, ".ci/run:1: path outside")

    def test_files_stay_below_the_limit(self):
        self.expect({"src/base/a.cpp": "\n" * 499})
        self.expect({"src/base/a.cpp": "\n" * 500}, "src/base/a.cpp:500: file has 500 lines")
        self.expect({"docs/a.md": "\n" * 500})


if __name__ == "__main__":
    unittest.main()
