// The names of our own keys in the store. They lie beside torch.distributed's, which begin with "default_pg/", so ranks
// that run Python ignore them. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::keys {

/// Prefix of everything below; a key space of its own per restart, because torchrun keeps one store for all attempts.
inline std::string space(int restart_count) {
  return "ddprun/attempt" + std::to_string(restart_count);
}

/// Who holds this rank: host and process.
inline std::string holder(int rank) {
  return "holder/" + std::to_string(rank);
}
/// How many groups this rank has begun to form, for programs that close their group and form another.
inline std::string generation(int rank) {
  return "generation/" + std::to_string(rank);
}

/// Prefix of the keys of one group, below space().
inline std::string group(int64_t generation) {
  return "group" + std::to_string(generation);
}

/// Prefix of the keys of a group's n-th sub-group, below the group's own.
inline std::string subgroup(int64_t number) {
  return "subgroup" + std::to_string(number);
}

/// In which process a rank is; the same of all ranks, which rank 0 writes.
inline std::string process(int rank) {
  return "process/" + std::to_string(rank);
}
inline std::string processes() {
  return "processes";
}

/// Set when this rank has arrived.
inline std::string present(int rank) {
  return "present/" + std::to_string(rank);
}
/// Set when the rank is connected to all others.
inline std::string connected(int rank) {
  return "connected/" + std::to_string(rank);
}
/// Set when the rank has left its group: kClosed in order, kLeftOnError because of an error. Its report follows in the
/// next lines.
inline constexpr const char* kClosed = "closed";
inline constexpr const char* kLeftOnError = "gave up";
inline std::string exited(int rank) {
  return "exited/" + std::to_string(rank);
}
/// Set when the rank begins to close its group, as kClosed: before its connections do.
inline std::string closing(int rank) {
  return "closing/" + std::to_string(rank);
}
/// What the first rank to arrive expects of the job: world size and backends.
inline std::string agreement() {
  return "agreement";
}
/// Which rank uses a GPU, by its UUID; how many ranks have claimed theirs; set when all have; why one was refused.
inline std::string gpu(const std::string& uuid) {
  return "gpu/" + uuid;
}
inline std::string gpu_claims() {
  return "gpu_claims";
}
inline std::string all_gpus_claimed() {
  return "all_gpus_claimed";
}
inline std::string gpu_refusal() {
  return "gpu_refusal";
}
/// Set by a rank when a collective of the group has failed there: its report.
inline std::string failed(int rank) {
  return "failed/" + std::to_string(rank);
}
/// Of the job's group, for all its sub-groups: this rank knows the cause of a failure, and needs the store no more for
/// that; another one has found that it does not answer.
inline std::string learned(int rank) {
  return "learned/" + std::to_string(rank);
}
inline std::string silent(int rank) {
  return "silent/" + std::to_string(rank);
}
/// How many ranks look for the cause of a failure.
inline std::string investigators() {
  return "investigators";
}
/// What the first of them has found out.
inline std::string verdict() {
  return "verdict";
}
/// How often this rank has been asked where it is; its n-th question, and its answer to that. Of the job's group, for
/// all its sub-groups.
inline std::string questions(int rank) {
  return "questions/" + std::to_string(rank);
}
inline std::string question(int rank, int64_t number) {
  return "question/" + std::to_string(rank) + "/" + std::to_string(number);
}
inline std::string answer(int rank, int64_t number) {
  return "answer/" + std::to_string(rank) + "/" + std::to_string(number);
}
/// What this rank says in comparison number `comparison`; rank -1: how many ranks have done it.
inline std::string compared(uint64_t comparison, int rank) {
  return "compared/" + std::to_string(comparison) + "/" + std::to_string(rank);
}

}  // namespace ddp::keys
