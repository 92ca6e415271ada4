"""torchvision, timm, PyG, MONAI, torchmetrics, sklearn, transformers, and what draws and saves pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..loading import Table

ROWS: Table = {
    # torchvision
    "torchvision.models.*": ("module", {"weights": "weights pretrained"}),
    "torchvision.datasets.*": ("dataset", {"download": "download"}),
    "torchvision.utils.save_image": ("write", {"path": 1, "data": 0}),
    "torchvision.utils.make_grid": ("concat", {"fixed": 0}),
    "torchvision.io.write_png": ("write", {"path": 1, "data": 0}),
    "torchvision.io.write_jpeg": ("write", {"path": 1, "data": 0}),
    "torchvision.io.write_video": ("write", {"path": 1, "data": 0}),
    "torchvision.datasets.utils.download_url": ("download", {"keeps": True}),
    "torchvision.datasets.utils.download_and_extract_archive": ("download", {}),
    "torchvision.datasets.utils.extract_archive": ("download", {}),
    "torchvision.datasets.utils.download_file_from_google_drive": ("download", {}),
    "torchvision.transforms.*": ("opaque", {"why": "a transform of one row, in the dataset"}),
    "torchvision.ops.*": ("opaque", {"why": "an operation on boxes"}),
    # torchtext
    "torchtext.datasets.*": ("download", {"keeps": True}),
    "torchtext.utils.download_from_url": ("download", {"keeps": True}),
    "torchtext.utils.extract_archive": ("download", {"keeps": True}),
    # timm
    "timm.create_model": ("module", {"weights": "pretrained"}),
    "timm.models.create_model": ("module", {"weights": "pretrained"}),
    "timm.optim.*": ("optimizer", {"only": "classes"}),
    "timm.scheduler.*": ("scheduler", {"only": "classes"}),
    # other optimizers
    "bitsandbytes.optim.*": ("optimizer", {"only": "classes"}),
    "apex.optimizers.*": ("optimizer", {"only": "classes"}),
    "torch.optim._multi_tensor.*": ("optimizer", {"only": "classes", "until": "2.0"}),
    # PyG
    "torch_geometric.loader.DataLoader": ("loader", {}),
    "torch_geometric.data.DataLoader": ("loader", {}),
    # MONAI
    # metrics
    "torchmetrics.*": ("metric", {"joins": True}),
    "sklearn.metrics.*": ("opaque", {"why": "a figure of all rows that it is given"}),
    # sklearn
    "sklearn.model_selection.train_test_split": ("split", {"generator": "numpy", "seed": "random_state"}),
    "sklearn.model_selection.ShuffleSplit": ("split", {"generator": "numpy", "seed": "random_state"}),
    "sklearn.model_selection.StratifiedShuffleSplit": ("split", {"generator": "numpy", "seed": "random_state"}),
    "sklearn.model_selection.GroupShuffleSplit": ("split", {"generator": "numpy", "seed": "random_state"}),
    "sklearn.model_selection.KFold": ("split", {"generator": "numpy", "seed": "random_state", "shuffles": "asked"}),
    "sklearn.model_selection.StratifiedKFold": (
        "split",
        {"generator": "numpy", "seed": "random_state", "shuffles": "asked"},
    ),
    # transformers
    "transformers.*Model*.from_pretrained": ("module", {"weights": "always"}),
    "transformers.*Model*.from_config": ("module", {}),
    "transformers.get_*schedule*": ("scheduler", {}),
    "transformers.DataCollatorWithPadding": ("collate", {"pads": "input_ids attention_mask token_type_ids"}),
    "transformers.default_data_collator": ("collate", {}),
    # weights
    "safetensors.torch.load_file": ("checkpoint", {}),
    "safetensors.torch.save_file": ("write", {"path": 1, "data": 0}),
    "safetensors.torch.save_model": ("write", {"path": 1, "data": 0}),
    "safetensors.safe_open": ("read", {}),
    # moving averages of weights
    "diffusers.training_utils.EMAModel": ("weight_average", {}),
    "torch_ema.ExponentialMovingAverage": ("weight_average", {}),
    # data that is fetched
    "wget.download": ("download", {}),
    "gdown.download": ("download", {}),
    "gdown.cached_download": ("download", {"keeps": True}),
    "gdown.download_folder": ("download", {}),
    "nltk.download": ("download", {"keeps": True}),
    "patoolib.extract_archive": ("download", {}),
    "kaggle.api.dataset_download_files": ("download", {}),
    # locks that processes share
    "filelock.FileLock": ("lock", {}),
    "filelock.SoftFileLock": ("lock", {}),
    "fasteners.InterProcessLock": ("lock", {}),
    "portalocker.Lock": ("lock", {}),
    # pictures, sound, video
    "matplotlib.pyplot.savefig": ("write", {"path": 0}),
    "matplotlib.pyplot.imsave": ("write", {"path": 0}),
    "matplotlib.image.imsave": ("write", {"path": 0}),
    "matplotlib.pyplot.show": ("write", {"how": "shows"}),
    "matplotlib.pyplot.pause": ("write", {"how": "shows"}),
    "matplotlib.pyplot.ion": ("write", {"how": "shows"}),
    "matplotlib.figure.Figure.savefig": ("write", {"path": 0}),
    "imageio.imwrite": ("write", {"path": 0, "data": 1}),
    "imageio.imsave": ("write", {"path": 0, "data": 1}),
    "imageio.mimsave": ("write", {"path": 0, "data": 1}),
    "imageio.v2.imwrite": ("write", {"path": 0, "data": 1}),
    "imageio.v2.imsave": ("write", {"path": 0, "data": 1}),
    "imageio.v2.mimsave": ("write", {"path": 0, "data": 1}),
    "imageio.v3.imwrite": ("write", {"path": 0, "data": 1}),
    "cv2.imwrite": ("write", {"path": 0, "data": 1}),
    "skimage.io.imsave": ("write", {"path": 0, "data": 1}),
    "scipy.misc.imsave": ("write", {"path": 0, "data": 1}),
    "torchaudio.save": ("write", {"path": 0, "data": 1}),
    "soundfile.write": ("write", {"path": 0}),
    "scipy.io.wavfile.write": ("write", {"path": 0}),
    "PIL.Image.open": ("read", {}),
    "cv2.imread": ("read", {}),
    "imageio.imread": ("read", {}),
    "imageio.v2.imread": ("read", {}),
    "matplotlib.image.imread": ("read", {}),
    "matplotlib.pyplot.imread": ("read", {}),
    # tables and other files
    "scipy.io.savemat": ("write", {"path": 0, "data": 1}),
    "joblib.dump": ("write", {"path": 1, "data": 0}),
    "dill.dump": ("write", {"path": 1, "data": 0}),
    "yaml.dump": ("write", {"path": 1, "data": 0}),
    "yaml.safe_dump": ("write", {"path": 1, "data": 0}),
    "toml.dump": ("write", {"path": 1, "data": 0}),
    # objects of these packages that write themselves, whatever made them
    "PIL.*.save": ("write", {"path": 0}),
    "matplotlib.*.save": ("write", {"path": 0}),
    "torchvision.*.save": ("write", {"path": 0}),
    "pandas.DataFrame.to_csv": ("write", {"path": 0}),
    "pandas.DataFrame.to_json": ("write", {"path": 0}),
    "pandas.DataFrame.to_excel": ("write", {"path": 0}),
    "pandas.DataFrame.to_pickle": ("write", {"path": 0}),
    "pandas.DataFrame.to_parquet": ("write", {"path": 0}),
    "pandas.DataFrame.to_feather": ("write", {"path": 0}),
    "pandas.DataFrame.to_hdf": ("write", {"path": 0}),
    "pandas.DataFrame.to_html": ("write", {"path": 0}),
    "pandas.DataFrame.to_markdown": ("write", {"path": 0}),
    "pandas.DataFrame.to_latex": ("write", {"path": 0}),
    "plotly.graph_objects.Figure.write_html": ("write", {"path": 0}),
    "plotly.graph_objects.Figure.write_image": ("write", {"path": 0}),
    "transformers.PreTrainedModel.save_pretrained": ("write", {"path": 0}),
    "transformers.PreTrainedModel.push_to_hub": ("write", {"path": 0}),
    "pandas.read_csv": ("read", {}),
    "pandas.read_json": ("read", {}),
    "pandas.read_pickle": ("read", {}),
    "pandas.read_parquet": ("read", {}),
    "pandas.read_table": ("read", {}),
    "pandas.read_excel": ("read", {}),
    "joblib.load": ("read", {}),
    "scipy.io.loadmat": ("read", {}),
    "yaml.safe_load": ("read", {}),
    "h5py.File": ("read", {}),
}
