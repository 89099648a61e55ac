#include "launcher/nodes/elastic/round_end.h"

#include "launcher/os/system/launch_error.h"

namespace launcher::elastic {

Rounds::Cause cause_of(const FailureNotice& first, bool is_replaceable) {
  using Cause = Rounds::Cause;
  if (first.is_regrouping) return Cause::kJoin;
  const bool is_late = first.exit_status == to_int(ExitStatus::kTimeout) && first.is_final;
  if (is_late) return Cause::kFinal;
  // The end of a launcher is final for its node. It ends the job only where the others need that launcher.
  const bool is_end_of_coordinator = first.node == 0 && first.is_final;
  if (is_end_of_coordinator && !is_replaceable) return Cause::kFinal;
  // Of a launcher that was told to stop. One that was killed may be started again as well, but has failed.
  const bool is_departure = first.may_come_again && first.exit_status > to_int(ExitStatus::kSignalBase);
  if (is_departure) return Cause::kDeparture;
  return is_end_of_coordinator ? Cause::kCoordinatorLoss : Cause::kFailure;
}

bool hands_over(const FailureNotice& first, Rounds::Cause cause) {
  return cause == Rounds::Cause::kCoordinatorLoss || (cause == Rounds::Cause::kDeparture && first.node == 0);
}

}  // namespace launcher::elastic
