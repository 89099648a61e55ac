// Samples of a batch mixed with each other, and their labels with them. Reference: torchvision.transforms.v2.
#pragma once

#include <cstdint>

#include <ddprun/data/batch.h>
#include <ddprun/data/transform.h>

namespace ddp::transforms {

struct MixOptions {
  int64_t classes = 0;  ///< number of classes, for labels that are indices
  double alpha = 1;     ///< parts are drawn from Beta(alpha, alpha)
};

/// Each sample becomes part · itself + (1 - part) · the one before it in the batch, with one part for the whole batch:
/// Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018; torchvision's MixUp. `target`, int64 (B) class
/// indices or float (B, classes), becomes float (B, classes), which cross_entropy takes. Throws std::invalid_argument
/// for an alpha that is not above 0 or no classes, and the transform does for another target.
BatchTransform mixup(const MixOptions& options);
/// Instead of mixing, a random rectangle of the sample before is pasted: Yun et al., "CutMix", ICCV 2019; torchvision's
/// CutMix. Samples are pictures (B, C, H, W).
BatchTransform cutmix(const MixOptions& options);

/// The mixing itself, with this part of each sample itself.
Batch mix(const Batch& batch, double part, int64_t classes);

/// A number of Beta(alpha, alpha).
double draw_beta(double alpha, SampleRandom& random);

}  // namespace ddp::transforms
