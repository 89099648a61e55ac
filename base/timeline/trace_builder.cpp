#include "base/timeline/trace_builder.h"

#include <algorithm>
#include <utility>

namespace ddp::detail {

void TraceBuilder::begin_rank(int rank, const std::string& name) {
  RankState& state = ranks_[rank];
  state.before += std::exchange(state.lost, 0);
  state.assembler = std::make_unique<Assembler>([this, rank](const TraceEvent& event) { write(rank, event); });
  if (state.clock) state.assembler->set_ahead(state.clock->ahead);
  file_.add(rank_json(rank, name));
}

void TraceBuilder::set_clock(int rank, const RankClock& clock) {
  RankState& state = ranks_[rank];
  state.clock = clock;
  if (state.assembler) state.assembler->set_ahead(clock.ahead);
}

// Adds an eighth to the clock error, because the error usually grows slightly from one record to the next.
void TraceBuilder::note_clock(RankState& state) {
  const std::int64_t before = state.largest_error;
  if (!state.clock->error) {
    state.largest_error = -1;
  } else if (before >= 0 && *state.clock->error > before) {
    state.largest_error = *state.clock->error / 8 * 9;
  }
  has_other_clocks_ = has_other_clocks_ || state.largest_error != before;
}

void TraceBuilder::write(int rank, const TraceEvent& event) {
  RankState& state = ranks_.at(rank);
  state.newest = std::max(state.newest, event.end);
  if (state.clock) note_clock(state);
  file_.add(trace_json(event, rank, base_));
  if (event.form != TraceEvent::Form::kLaneName) ++events_;
}

void TraceBuilder::take(int rank, std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words) {
  const auto found = ranks_.find(rank);
  if (found != ranks_.end() && found->second.assembler) found->second.assembler->take(lane, position, words);
}

void TraceBuilder::on_pass_end(int rank, std::uint64_t lost) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end() || !found->second.assembler) return;
  RankState& state = found->second;
  state.assembler->on_pass_end();
  if (has_other_clocks_) set_totals();
  if (lost <= state.lost) return;
  write(rank, {.form = TraceEvent::Form::kInstant,
               .lane = kStepsLane,
               .begin = state.newest,
               .end = state.newest,
               .name = std::to_string(lost - state.lost) +
                       " events lost: they were recorded faster than they could be written"});
  state.lost = lost;
  set_totals();
}

void TraceBuilder::pause_rank(int rank, std::uint64_t now) {
  const auto found = ranks_.find(rank);
  if (found != ranks_.end() && found->second.assembler) found->second.assembler->finish(now);
}

void TraceBuilder::end_rank(int rank, std::uint64_t now) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end() || !found->second.assembler) return;
  found->second.assembler->finish(now);
  found->second.before += found->second.assembler->damaged();
  found->second.assembler.reset();
  set_totals();
}

std::uint64_t TraceBuilder::lost() const {
  std::uint64_t lost = 0;
  for (const auto& [rank, state] : ranks_) lost += state.lost + state.before;
  return lost;
}

void TraceBuilder::set_totals() {
  has_other_clocks_ = false;
  std::string clocks;
  for (const auto& [rank, state] : ranks_) {
    if (!state.clock || state.largest_error == 0) continue;
    const std::string error = state.largest_error < 0 ? "null" : std::to_string(state.largest_error / 1000 + 1);
    clocks += (clocks.empty() ? "\"" : ",\"") + std::to_string(rank) + "\":" + error;
  }
  std::string text;
  for (const auto& [rank, state] : ranks_) {
    if (state.lost + state.before == 0) continue;
    text += (text.empty() ? "\"" : ",\"") + std::to_string(rank) + "\":" + std::to_string(state.lost + state.before);
  }
  file_.set_totals("{\"lost_events\":{" + text + "}" +
                   (clocks.empty() ? std::string() : ",\"clock_error_us\":{" + clocks + "}") + "}");
}

}  // namespace ddp::detail
