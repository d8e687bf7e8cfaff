#include "plan/trace_placement.hpp"

#include "plan/tiny_trace.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"
#include "trace/trace_file.hpp"

#include <catch2/catch.hpp>

using metro::ExitCode;
using metro::Placement;
using metro::PlacementNeed;
using metro::test::expect_error;
using metro::test::ScratchFolder;
using metro::test::tiny_trace;

TEST_CASE("a deck's trace gives a placement for the ranks and slots of the job") {
  const ScratchFolder folder;
  metro::write_trace(tiny_trace(3, 20), folder.file("t.h5"), false);

  const Placement placement = metro::place_from_trace(folder.file("t.h5"), {2, 8, 1, 1, 4, 3, 64, 1});

  CHECK(placement.slots_per_rank == 3);
  CHECK_NOTHROW(metro::check_placement(placement, 2, 8, 4, "test"));
}

TEST_CASE("a trace of another model, or without tokens, is refused by name") {
  const ScratchFolder folder;
  metro::write_trace(tiny_trace(3, 20), folder.file("t.h5"), false);
  metro::write_trace(tiny_trace(0, 0), folder.file("empty.h5"), false);

  expect_error(ExitCode::usage, {"t.h5", "2 MoE layers with 8 experts", "has 3 with 8"}, [&] {
    metro::place_from_trace(folder.file("t.h5"), {3, 8, 1, 1, 4, 3, 64, 1});
  });
  expect_error(ExitCode::usage, {"t.h5", "has 2 with 16"}, [&] {
    metro::place_from_trace(folder.file("t.h5"), {2, 16, 1, 1, 4, 5, 64, 1});
  });
  expect_error(ExitCode::usage, {"empty.h5", "no tokens"}, [&] {
    metro::place_from_trace(folder.file("empty.h5"), {2, 8, 1, 1, 4, 3, 64, 1});
  });
  expect_error(ExitCode::input, {"none.h5"}, [&] {
    metro::place_from_trace(folder.file("none.h5"), {2, 8, 1, 1, 4, 3, 64, 1});
  });
}
