"""Training of regressors: corpora, data sets, fitting, evaluation, records in MLflow, and bundles.

Training turns the measurements in a store into bundles: files from which costs of unmeasured layers are predicted. This
package does not depend on the code that serves the bundles.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
